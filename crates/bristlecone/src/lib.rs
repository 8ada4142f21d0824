//! Ordered key-value indexes that survive crashes.
