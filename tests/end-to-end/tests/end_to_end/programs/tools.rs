//! The small tools that read and write files.

use super::{add, each_line, files, program, script, setup, sort_lines};
use crate::suite::Suite;
use runahead_end_to_end::scenario::bytes;
use runahead_end_to_end::supervise::Stdin;
use std::fs::File;
use std::io::Write;

pub fn suite(suite: &mut Suite) {
    readers(suite);
    writers(suite);
}

fn readers(suite: &mut Suite) {
    let all = "find tree -type f -name '*.txt' | sort | xargs";
    for (name, command) in [
        ("cat", "cat"),
        ("cat-numbered", "cat -A"),
        ("md5sum", "md5sum"),
        ("sha256sum", "sha256sum"),
        ("wc", "wc"),
        ("sort", "sort"),
        ("grep", "grep -c needle"),
        ("head", "head -n 3"),
        ("tail", "tail -n 3"),
        ("awk", "awk '{ n += NF } END { print n }'"),
        ("od", "od -x"),
        ("perl", "perl -ne '$n{$_}++ for split; END { print \"$_ $n{$_}\\n\" for sort keys %n }'"),
    ] {
        // xargs runs under Runahead too: the reader is its child.
        add(suite, &[], script(name, &format!("{} $UNDER {command}", all)));
        add(
            suite,
            &[],
            script(
                &format!("{name}-below-xargs"),
                &format!("find tree -name '*.txt' | sort > names; $UNDER xargs -n 25 -a names {command}"),
            ),
        );
    }
    add(suite, &[], program("grep-r", &["grep", "-r", "needle", "tree"]).expect(None).normalize(sort_lines));
    add(
        suite,
        &[],
        program("find-ls", &["find", "tree", "-ls"]).normalize(|outcome| {
            // Without inode numbers and blocks; the order of a directory is the file system's own.
            each_line(outcome, |line| Some(line.split_whitespace().skip(2).collect::<Vec<_>>().join(" ")));
            sort_lines(outcome);
        }),
    );
    add(suite, &[], program("du", &["du", "-ab", "tree"]).normalize(sort_lines));
    add(
        suite,
        &[],
        program("ls-lR", &["ls", "-lRn", "--full-time", "tree"]).normalize(|outcome| {
            each_line(outcome, |line| (!line.starts_with("total")).then(|| line.to_owned()));
        }),
    );
    add(suite, &[], program("diff-r", &["diff", "-r", "tree/folder-1", "tree/folder-2"]).expect(None));
    add(suite, &[], program("cmp", &["cmp", "tree/noise.bin", "tree/sparse"]).expect(None));
    add(
        suite,
        &[],
        program("cat-nothing", &["cat", "tree/nothing", "tree/folder-1", "tree/empty"]).expect(None),
    );
    add(suite, &[], program("cat-stdin", &["cat"]).stdin(Stdin::File("tree/noise.bin".into())));
    add(
        suite,
        &[],
        program("dd-direct", &["dd", "if=tree/noise.bin", "iflag=direct", "bs=64K", "status=none"]),
    );
    add(
        suite,
        &[],
        program("dd-skip", &["dd", "if=tree/noise.bin", "bs=1000", "skip=333", "count=99", "status=none"]),
    );
    add(suite, &[], program("tail-of-pipe", &["tail", "-c", "100"]).stdin(Stdin::Pipe(bytes(5, 50_000))));
    add(
        suite,
        &["command rg"],
        program("ripgrep", &["rg", "-j1", "--sort", "path", "needle", "tree"]).expect(None),
    );
}

fn writers(suite: &mut Suite) {
    add(suite, &[], program("cp-a", &["cp", "-a", "tree", "copy"]));
    add(suite, &[], program("cp-r", &["cp", "-r", "--reflink=never", "tree", "copy"]));
    add(suite, &[], program("tar-create", &["tar", "--sort=name", "-cf", "out.tar", "tree"]));
    add(suite, &[], program("tar-to-pipe", &["tar", "--sort=name", "-cf", "-", "tree"]));
    add(suite, &[], program("tar-gz", &["tar", "--sort=name", "-czf", "out.tgz", "tree"]));
    add(
        suite,
        &[],
        program("tar-extract", &["tar", "-xf", "in.tar", "-C", "out"]).prepare(|directory| {
            files(directory)?;
            setup(directory, "tar --sort=name --mtime=@1500000000 -cf in.tar tree; mkdir out")
        }),
    );
    add(suite, &["command rsync"], program("rsync", &["rsync", "-a", "-c", "tree/", "copy"]));
    add(suite, &["command rsync"], program("rsync-dry", &["rsync", "-anic", "tree/", "copy"]));
    for tool in ["gzip", "xz", "zstd", "bzip2"] {
        let need = format!("command {tool}");
        let pack = "tree/noise.bin tree/sparse tree/folder-[123]/*.txt";
        add(suite, &[&need], program(tool, &["bash", "-c", &format!("{tool} -q -k -f -3 {pack}")]));
        let there_and_back = format!(
            "cat tree/sparse tree/folder-[12]/*.txt > all; {tool} -q -k -1 all; rm all; $UNDER {tool} -q -d all.*; cksum all"
        );
        add(suite, &[&need], script(&format!("{tool}-back"), &there_and_back));
    }
    add(
        suite,
        &[],
        program("sort-big", &["sort", "-S", "200K", "-T", ".", "-o", "sorted", "big"]).prepare(|directory| {
            let mut out = File::create(directory.join("big"))?;
            for chunk in bytes(9, 400_000).chunks(8) {
                writeln!(out, "{:?}", chunk)?;
            }
            Ok(())
        }),
    );
    add(suite, &[], program("split", &["split", "-b", "100000", "tree/noise.bin", "part-"]));
    add(suite, &[], program("sed-in-place", &["bash", "-c", "sed -i s/needle/pin/g tree/folder-*/*.txt"]));
    add(suite, &[], program("install", &["install", "-m", "0750", "-D", "tree/noise.bin", "a/b/c"]));
    add(
        suite,
        &["command ssh-keygen"],
        program("ssh-keygen", &["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "key"]).normalize(
            |outcome| {
                // The key is random; that it is there, and who may read it, is not.
                for entry in outcome.tree.values_mut().filter(|entry| entry.size < 1000) {
                    (entry.contents, entry.size) = (Vec::new(), 0);
                }
            },
        ),
    );
}
