//! The worked example, run.

use std::process::Command;

#[test]
fn the_rust_example() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let files: Vec<_> = (0..50).map(|number| folder.path().join(format!("file{number}"))).collect();
    for file in &files {
        std::fs::write(file, vec![3; 20_000]).unwrap();
    }
    let test = std::env::current_exe().unwrap();
    let example = test.parent().unwrap().parent().unwrap().join("examples/sum");
    let output = Command::new(example).args(&files).env("SHOW_COUNTS", "1").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{}\n", 50 * 20_000 * 3));
    let counts = String::from_utf8_lossy(&output.stderr);
    assert!(counts.starts_with("hints 50"), "{counts}");
}
