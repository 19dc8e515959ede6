//! Link arguments of the speculator: a static program without libc, at an address of its own.

fn main() {
    for argument in [
        "-nostdlib",
        "-nostartfiles",
        "-static",
        "-no-pie",
        // The runtime's window, see `layout`: no program maps anything there by default.
        "-Wl,--image-base=0x6a0000000000",
        "-Wl,-z,noexecstack,-z,norelro",
        "-Wl,--gc-sections",
        "-Wl,-e,runahead_speculator_start",
    ] {
        println!("cargo::rustc-link-arg-bins={argument}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
