//! Closures that receive a value and write to the tree meanwhile.

use std::sync::mpsc::channel;
use std::time::Duration;

use crate::common::{CONFIGURATIONS, Plant, Scratch};

/// Time after which they count as hung.
const PATIENCE: Duration = Duration::from_secs(100);
const KEYS: u64 = 200;

#[test]
fn a_closure_that_is_shown_a_value_may_write() {
    for &shape in CONFIGURATIONS {
        let (done, ended) = channel();
        std::thread::spawn(move || {
            let scratch = Scratch::new();
            let pool = scratch.open();
            let words = shape.create::<u64, u64>(&pool, "words").unwrap();
            let texts = shape.create::<u64, &[u8]>(&pool, "texts").unwrap();
            for key in 0..KEYS {
                words.insert(key, key).unwrap();
                texts.insert(key, &[key as u8; 30]).unwrap();
            }
            for key in 0..KEYS {
                let seen = words
                    .get_with(key, |seen| {
                        assert_eq!(words.update(key, key + 1).unwrap(), Some(seen));
                        assert_eq!(words.insert(key + KEYS, key).unwrap(), None);
                        assert_eq!(words.remove(key).unwrap(), Some(key + 1));
                        seen
                    })
                    .unwrap();
                assert_eq!((seen, words.get(key).unwrap()), (Some(key), None));
                let seen = texts
                    .get_with(key, |seen| {
                        assert_eq!(texts.update(key, b"new").unwrap().as_deref(), Some(seen));
                        assert_eq!(texts.insert(key + KEYS, b"other").unwrap(), None);
                        assert_eq!(texts.remove(key).unwrap().as_deref(), Some(&b"new"[..]));
                        seen.to_vec()
                    })
                    .unwrap();
                assert_eq!((seen, texts.get(key).unwrap()), (Some(vec![key as u8; 30]), None));
            }
            assert_eq!(
                (words.len().unwrap(), words.check(), texts.len().unwrap(), texts.check()),
                (KEYS, vec![], KEYS, vec![])
            );
            done.send(()).unwrap();
        });
        ended.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("{shape:?}: {error}"));
    }
}
