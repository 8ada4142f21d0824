//! How the shared library is linked.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libbristlecone.so.1");
    // The library may have a signal handler installed, and threads may have locals of it: it stays loaded.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
