//! Link arguments of the agent: no libc, no start files, one entry that the loader calls.

fn main() {
    for argument in [
        "-nostdlib",
        "-nostartfiles",
        // DT_INIT: called by the loader with (argc, argv, envp) on glibc, without arguments on musl.
        "-Wl,-init=runahead_agent_start",
        // Before all other initialisers, the executable's DT_PREINIT_ARRAY among them (src/loader.rs).
        "-Wl,-z,initfirst",
        "-Wl,-z,now,-z,relro,-z,noexecstack",
        "-Wl,--no-undefined",
        "-Wl,-soname,librunahead_agent.so",
        // Only what is reachable from the start: the rest of core is not carried into the program.
        "-Wl,--gc-sections",
    ] {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
