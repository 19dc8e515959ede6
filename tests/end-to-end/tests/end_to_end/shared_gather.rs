//! Threads that gather from one mapped file, each its share: each is run ahead of when the one before is through.

use crate::slow_disk::{self, Disk, number};
use crate::suite::Suite;
use runahead_end_to_end::Verdict;
use runahead_end_to_end::c_program::compiled;
use runahead_end_to_end::scenario::bytes;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Words that each of two threads reads. (Of those of the first alone some 230 are foretold: the others came with what the second
/// reads.)
const WORDS: u64 = 400;

/// The first thread maps the file, and reads its share beside the other.
const PROGRAM: &str = r#"
    #include <fcntl.h>
    #include <pthread.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <sys/mman.h>
    #include <sys/stat.h>
    static const unsigned char *at;
    static unsigned long bytes, words;
    static void *share(void *number) {
        unsigned long sum = 0, from = (unsigned long)number * words;
        for (unsigned long word = from; word < from + words; word++) {
            unsigned long place = word * 0x9e3779b97f4a7c15ul;
            sum = sum * 33 + at[(place >> 20) % bytes];
        }
        return (void *)sum;
    }
    int main(int count, char **word) {
        int fd = open(word[1], O_RDONLY);
        struct stat status;
        if (fd < 0 || fstat(fd, &status)) return 1;
        bytes = status.st_size, words = atol(word[2]);
        at = mmap(0, bytes, PROT_READ, MAP_SHARED, fd, 0);
        if (at == MAP_FAILED || madvise((void *)at, bytes, MADV_RANDOM)) return 1;
        pthread_t other;
        void *theirs;
        if (pthread_create(&other, 0, share, (void *)1)) return 1;
        void *own = share(0);
        pthread_join(other, &theirs);
        printf("%lu %lu\n", (unsigned long)own, (unsigned long)theirs);
        return 0;
    }
"#;

pub fn add(suite: &mut Suite) {
    let wants = slow_disk::WANTS.into_iter().chain(["command gcc", "root"]);
    suite.add("threads::each that gathers is run ahead of", wants, gathers);
}

fn gathers() -> Verdict {
    let program = compiled("shared-gather", PROGRAM, &["-O1", "-pthread"])?;
    let filled = |folder: &Path| {
        fs::copy(&program, folder.join("gather"))?;
        fs::write(folder.join("data"), bytes(3, 52 << 20))
    };
    let line = format!("cd $0; exec ./gather data {WORDS}");
    let words = |mount: &Path| vec!["bash".into(), "-c".into(), line.clone().into(), mount.into()];
    let good = |counts: &Value| {
        let foretold = number(&counts["faults"], "foretold_pages")?;
        if foretold >= WORDS * 3 / 4 { Ok(()) } else { Err(format!("{foretold} pages foretold")) }
    };
    let verdict = Disk::new("gather", "cloud", filled)?.until(&words, 1, good);
    let _ = fs::remove_file(program);
    verdict
}
