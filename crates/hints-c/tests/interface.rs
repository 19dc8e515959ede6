//! The interface as its users meet it: the worked examples, with and without the library, a process that
//! forks, a process whose signals and errno stay its own.

use runahead as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// Where cargo puts what it builds.
fn built() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().parent().unwrap().to_path_buf()
}

/// The folder with the shared library: beside the programs after `cargo build`, in `deps` after `cargo test`.
fn library() -> PathBuf {
    [built().join("deps"), built()]
        .into_iter()
        .find(|folder| folder.join("librunahead.so").exists())
        .expect("librunahead.so is built with the tests")
}

fn files(folder: &Path) -> (Vec<PathBuf>, String) {
    let files: Vec<PathBuf> = (0..50).map(|number| folder.join(format!("file{number}"))).collect();
    for file in &files {
        std::fs::write(file, vec![3; 20_000]).unwrap();
    }
    (files, format!("{}\n", 50 * 20_000 * 3))
}

/// A folder on a real disk.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn compile(folder: &Path, source: &str, arguments: &[&str]) -> PathBuf {
    let program = folder.join("program");
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let status = Command::new("cc")
        .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"])
        .arg(here.join("include"))
        .arg(here.join(source))
        .args(arguments)
        .arg("-o")
        .arg(&program)
        .status()
        .unwrap();
    assert!(status.success());
    program
}

fn run(program: &Path, files: &[PathBuf], library: &Path) -> Output {
    Command::new(program)
        .args(files)
        .env("LD_LIBRARY_PATH", library)
        .env("SHOW_COUNTS", "1")
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_c_example_linked_with_the_library() {
    let folder = folder();
    let (files, sum) = files(folder.path());
    let library = library();
    let program = compile(folder.path(), "examples/sum.c", &["-L", library.to_str().unwrap(), "-lrunahead"]);
    let output = run(&program, &files, &library);
    assert_eq!(text(&output.stdout), sum);
    assert!(text(&output.stderr).starts_with("hints 50, pages "), "{}", text(&output.stderr));
    let off = Command::new(&program)
        .args(&files)
        .env("LD_LIBRARY_PATH", &library)
        .env("SHOW_COUNTS", "1")
        .env("RUNAHEAD_HINTS", "off")
        .output()
        .unwrap();
    assert_eq!((text(&off.stdout), text(&off.stderr)), (sum, "hints 0, pages 0\n".into()));
}

#[test]
fn the_c_example_runs_without_the_library() {
    let folder = folder();
    let (files, sum) = files(folder.path());
    let program = compile(folder.path(), "examples/sum.c", &["-DRUNAHEAD_OPTIONAL", "-ldl"]);
    let absent = run(&program, &files, Path::new("/nowhere"));
    assert_eq!((text(&absent.stdout), text(&absent.stderr)), (sum.clone(), "hints 0, pages 0\n".into()));
    let present = run(&program, &files, &library());
    assert_eq!(text(&present.stdout), sum);
    assert!(text(&present.stderr).starts_with("hints 50"), "{}", text(&present.stderr));
}

#[test]
fn a_program_at_the_end_of_its_memory_goes_on() {
    let folder = folder();
    let library = library();
    let linked = ["-L", library.to_str().unwrap(), "-lrunahead", "-pthread"];
    // Loaded at the first hint, the library's variables of each thread are not there before the thread looks at them.
    for how in [&linked[..], &["-DRUNAHEAD_OPTIONAL", "-ldl", "-pthread"]] {
        let program = compile(folder.path(), "tests/no_memory.c", how);
        for moment in ["before the first hint", "after it", "after another thread's"] {
            let output =
                Command::new(&program).arg(moment).env("LD_LIBRARY_PATH", &library).output().unwrap();
            let errors = text(&output.stderr);
            let went_on = (text(&output.stdout), output.status.code());
            assert_eq!(went_on, ("went on\n".into(), Some(0)), "{how:?}, {moment}: {errors}");
        }
    }
}

/// Its threads would go on in memory that is not there any more.
#[test]
fn the_library_stays_when_it_is_unloaded() {
    let library = std::ffi::CString::new(library().join("librunahead.so").to_str().unwrap()).unwrap();
    // SAFETY: a library that may be loaded; nothing of it is used.
    unsafe {
        let loaded = libc::dlopen(library.as_ptr(), libc::RTLD_NOW);
        assert!(!loaded.is_null());
        libc::dlclose(loaded);
        assert!(!libc::dlopen(library.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD).is_null());
    }
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < Duration::from_secs(120), "never happened: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// One test for all that concerns this process's own prefetcher, since it has but one.
#[test]
fn in_this_process() {
    let folder = folder();
    let (files, _) = files(folder.path());
    // errno stays.
    let path = std::ffi::CString::new(files[0].to_str().unwrap()).unwrap();
    unsafe extern "C" {
        fn runahead_hint(path: *const libc::c_char, offset: u64, length: u64);
        fn runahead_counts(counts: *mut u64, size: usize);
        fn runahead_hint_batch(segments: *const libc::c_void, count: usize);
    }
    // SAFETY: errno is this thread's; the path is a string; the counts' sizes are as said.
    unsafe {
        *libc::__errno_location() = 77;
        runahead_hint(path.as_ptr(), 0, 0);
        runahead_hint(std::ptr::null(), 0, 0);
        runahead_hint_batch(std::ptr::null(), 5);
        assert_eq!(*libc::__errno_location(), 77);
        let mut short = [u64::MAX; 3];
        runahead_counts(short.as_mut_ptr(), 16);
        assert_eq!((short[0], short[2]), (2, u64::MAX));
    }
    until("five pages", || {
        let counts = runahead_prefetcher::global().counts();
        counts.asked_pages + counts.cached_pages == 5
    });
    // Every thread of the library blocks every signal.
    let ours = std::fs::read_dir("/proc/self/task").unwrap().filter_map(|task| {
        let task = task.unwrap().path();
        let name = std::fs::read_to_string(task.join("comm")).ok()?;
        (name.trim() == "runahead").then(|| std::fs::read_to_string(task.join("status")).ok()).flatten()
    });
    let mut threads = 0;
    for status in ours {
        threads += 1;
        let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap().trim();
        let mask = u64::from_str_radix(blocked, 16).unwrap();
        // All but SIGKILL, SIGSTOP and the C library's own two (32, 33).
        assert_eq!(mask | 1 << 8 | 1 << 18 | 3 << 31, u64::MAX, "{blocked}");
    }
    assert!(threads >= 2, "{threads}");
    // A forked child has hints of its own.
    let path = std::ffi::CString::new(files[1].to_str().unwrap()).unwrap();
    // SAFETY: the child only calls what is safe in a child of threads here (glibc's malloc is), and _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: the path is a string.
        unsafe { runahead_hint(path.as_ptr(), 0, 0) };
        let began = Instant::now();
        let mut done = false;
        while !done && began.elapsed() < Duration::from_secs(120) {
            let counts = runahead_prefetcher::global().counts();
            done = counts.hints == 1 && counts.asked_pages + counts.cached_pages == 5;
            std::thread::sleep(Duration::from_millis(2));
        }
        // SAFETY: ends the child.
        unsafe { libc::_exit(if done { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(status, 0, "the child's hints were not carried out");
}
