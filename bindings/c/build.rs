//! How the shared library is linked.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libbristlecone.so.1");
    // The library may have installed a signal handler, and threads may have its thread-local
    // variables: it must stay loaded.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
