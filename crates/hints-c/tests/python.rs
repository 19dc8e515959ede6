//! The Python package's own tests, against the library that was just built.

use std::path::Path;
use std::process::Command;

#[test]
fn the_python_package() {
    let test = std::env::current_exe().unwrap();
    let deps = test.parent().unwrap();
    let library = [deps, deps.parent().unwrap()]
        .map(|folder| folder.join("librunahead.so"))
        .into_iter()
        .find(|library| library.exists())
        .expect("librunahead.so is built with the tests");
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python/tests");
    let output = Command::new("python3")
        .args(["-B", "-m", "unittest", "discover", "-s"])
        .arg(tests)
        .env("RUNAHEAD_LIBRARY", library)
        .output()
        .expect("python3 is needed; ./x test installs it");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(!text.contains("Ran 0 tests"), "{text}");
}
