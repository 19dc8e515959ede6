//! What a suspicious reader of the code thought of: traces that Runahead might leave behind, and what the
//! agent's own binary must not hold.

use crate::programs;
use crate::suite::Suite;
use runahead_end_to_end::Verdict;
use runahead_end_to_end::locate::Runahead;
use runahead_end_to_end::scenario::{COLD, Scenario};
use std::path::Path;
use std::process::Command;

pub fn add(suite: &mut Suite) {
    suite.add("hostile::nothing in the agent's binary can panic", ["command nm"], || {
        no_panic(&Runahead::built()?)
    });
    suite.add("hostile::a file system can be unmounted at once", ["root", "command losetup"], unmount);
    suite.add("hostile::the site file is cut under the program", ["command python3"], cut_site_file);
    suite.add("hostile::a process namespace of the program's own", ["root", "command unshare"], namespace);
}

/// The agent's rule: what could panic would be named in its symbol table.
pub fn no_panic(runahead: &Runahead) -> Verdict {
    let library = Path::new(&runahead.command).with_file_name("librunahead_agent.so");
    let listed = Command::new("nm").arg(&library).output().map_err(|error| format!("nm: {error}"))?;
    let symbols = String::from_utf8_lossy(&listed.stdout);
    if !symbols.contains("runahead_agent_call") {
        return Err(format!("{} has no symbols, so nothing is proven", library.display()));
    }
    let telling = ["core9panicking", "_index_fail", "unwrap_failed", "expect_failed", "4core3fmt"];
    match telling.into_iter().find(|name| symbols.contains(name)) {
        None => Ok(()),
        Some(name) => Err(format!("{} holds '{name}': something can panic", library.display())),
    }
}

/// Who empties the site file while a program runs must not end the program at its next `dlopen`.
fn cut_site_file() -> Verdict {
    let line = r#"
        export XDG_CACHE_HOME=$PWD/own; mkdir own
        cut='import os
try: os.truncate("own/runahead/sites", 0)
except FileNotFoundError: pass
import bz2, lzma, ctypes
print(len(bz2.compress(b"x")), len(lzma.compress(b"x")), ctypes.CDLL("libm.so.6").abs(-3))'
        for round in 1 2 3; do $UNDER /usr/bin/python3 -B -S -c "$cut"; done
        rm -r own"#;
    Scenario::shell("hostile site file", line)
        .prepare(programs::files)
        .modes([COLD])
        .check(&Runahead::built()?)
}

/// When a reader is over, nothing of Runahead's may still have its files open: unmounting would fail.
fn unmount() -> Verdict {
    let line = r#"
        read_all='import os
for name in sorted(os.listdir("mounted/folder-1")):
    if name.endswith("txt"): print(name, sum(open("mounted/folder-1/" + name, "rb").read()))'
        truncate -s 24M disk; mkfs.ext4 -q -F disk; mkdir mounted
        mount -o loop disk mounted; cp -r tree/folder-* mounted; umount mounted
        for way in cat tar python find du; do
          mount -o loop disk mounted
          case $way in
            cat) $UNDER cat mounted/*/*.txt | cksum;;
            tar) (cd mounted; $UNDER tar --sort=name --mtime=@0 -cf - folder-*) | cksum;;
            find) $UNDER find mounted -name '*.txt' -size +3k | sort;;
            du) $UNDER du -s mounted/folder-1;;
            python) $UNDER /usr/bin/python3 -B -S -c "$read_all";;
          esac
          umount mounted && echo $way: unmounted
        done
        umount mounted 2> /dev/null
        rm -r disk mounted"#;
    Scenario::shell("hostile unmount", line)
        .prepare(programs::files)
        .modes([COLD, COLD, COLD])
        .check(&Runahead::built()?)
}

/// Process ids mean other processes there. The host must neither wait for those nor serve them.
fn namespace() -> Verdict {
    for options in ["--fork --kill-child", "--fork --kill-child --mount-proc"] {
        let line =
            format!("$UNDER unshare --pid {options} bash -c 'cat tree/*/*.txt | cksum; md5sum tree/*/*.txt'");
        Scenario::shell("hostile namespace", &line)
            .prepare(programs::files)
            .modes([COLD])
            .check(&Runahead::built()?)?;
    }
    Ok(())
}
