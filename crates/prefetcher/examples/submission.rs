//! Compares ways to bring random pages of a file into the page cache: what each costs its caller, and how
//! long until all have arrived. The file is dropped from the cache before each way, nothing else is.
//!
//! `submission FILE [REQUESTS] [BYTES]` prints a line for each way. `asking` is the time that one call kept
//! its caller (median and greatest), `all` the time until the last page had arrived, `processor` the whole
//! process's for each request.

use io_uring::{IoUring, opcode, types};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Requests in flight where the way bounds them.
const FLIGHT: usize = 64;

struct Work {
    file: File,
    offsets: Vec<u64>,
    bytes: usize,
}

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let number =
        |at: usize, default: usize| arguments.get(at).and_then(|text| text.parse().ok()).unwrap_or(default);
    let Some(path) = arguments.get(1) else {
        eprintln!("usage: submission FILE [REQUESTS] [BYTES]");
        std::process::exit(2);
    };
    let (requests, bytes) = (number(2, 1000), number(3, 4096));
    let file = File::open(path)?;
    let places = file.metadata()?.len() / bytes as u64;
    // A stride that is prime to any number of places that is no multiple of it: no two alike.
    let offsets = (0..requests as u64).map(|n| n * 7_919 % places * bytes as u64).collect();
    // SAFETY: advice only.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM) };
    let work = Work { file, offsets, bytes };
    measure("readahead", &work, |work, asked| {
        for &offset in &work.offsets {
            // SAFETY: asks for pages of our file.
            timed(asked, || unsafe { libc::readahead(work.file.as_raw_fd(), offset as i64, work.bytes) });
        }
        wait(work);
    });
    measure("fadvise", &work, |work, asked| {
        for &offset in &work.offsets {
            let (fd, length) = (work.file.as_raw_fd(), work.bytes as i64);
            // SAFETY: asks for pages of our file.
            timed(asked, || unsafe {
                libc::posix_fadvise(fd, offset as i64, length, libc::POSIX_FADV_WILLNEED)
            });
        }
        wait(work);
    });
    measure("io_uring", &work, ring);
    measure("threads", &work, threads);
    Ok(())
}

fn timed<T>(asked: &mut Vec<Duration>, work: impl FnOnce() -> T) {
    let began = Instant::now();
    work();
    asked.push(began.elapsed());
}

/// Until all has arrived: a byte of each, which reads nothing if it was asked for.
fn wait(work: &Work) {
    let mut byte = [0];
    for &offset in &work.offsets {
        let _ = work.file.read_at(&mut byte, offset + work.bytes as u64 - 1);
    }
}

fn ring(work: &Work, asked: &mut Vec<Duration>) {
    let Ok(mut ring) = IoUring::new(FLIGHT as u32) else { return };
    let _ = ring.submitter().register_files(&[work.file.as_raw_fd()]);
    let mut buffers = vec![vec![0u8; work.bytes]; FLIGHT];
    let mut free: Vec<usize> = (0..FLIGHT).collect();
    let mut next = work.offsets.iter();
    let mut open = 0;
    loop {
        while let Some(&buffer) = free.last() {
            let Some(&offset) = next.next() else { break };
            free.pop();
            let read = opcode::Read::new(types::Fixed(0), buffers[buffer].as_mut_ptr(), work.bytes as u32)
                .offset(offset)
                .build()
                .user_data(buffer as u64);
            // SAFETY: the buffer stays where it is until its completion has been taken.
            unsafe { ring.submission().push(&read) }.expect("as many entries as buffers");
            open += 1;
        }
        if open == 0 {
            return;
        }
        timed(asked, || ring.submit());
        ring.submit_and_wait(1).expect("the ring works");
        for completion in ring.completion() {
            free.push(completion.user_data() as usize);
            open -= 1;
        }
    }
}

fn threads(work: &Work, asked: &mut Vec<Duration>) {
    let next = AtomicUsize::new(0);
    let times = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..FLIGHT {
            scope.spawn(|| {
                let mut own = Vec::new();
                let mut byte = [0];
                while let Some(&offset) = work.offsets.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (fd, length) = (work.file.as_raw_fd(), work.bytes as i64);
                    timed(&mut own, || {
                        // SAFETY: asks for pages of our file.
                        unsafe { libc::posix_fadvise(fd, offset as i64, length, libc::POSIX_FADV_WILLNEED) }
                    });
                    let _ = work.file.read_at(&mut byte, offset + work.bytes as u64 - 1);
                }
                times.lock().expect("no thread panics").extend(own);
            });
        }
    });
    *asked = times.into_inner().expect("no thread panics");
}

fn processor() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn measure(name: &str, work: &Work, way: impl Fn(&Work, &mut Vec<Duration>)) {
    // SAFETY: advice only.
    unsafe { libc::posix_fadvise(work.file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    let mut asked = Vec::new();
    let (began, used) = (Instant::now(), processor());
    way(work, &mut asked);
    let (all, used) = (began.elapsed(), processor() - used);
    asked.sort_unstable();
    if asked.is_empty() {
        return println!("{name:>10}: not to be had here");
    }
    let micros = |time: Duration| time.as_nanos() as f64 / 1000.0;
    println!(
        "{name:>10}: asking {:.1} us (most {:.0}), all {:.1} ms, processor {:.1} us a request",
        micros(asked[asked.len() / 2]),
        micros(asked[asked.len() - 1]),
        micros(all) / 1000.0,
        micros(used) / work.offsets.len() as f64
    );
}
