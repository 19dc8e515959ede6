//! How the shared library is linked: by a name of its own, and for good. Its threads go on when a program unloads it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,librunahead.so");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
