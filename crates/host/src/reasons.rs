//! What the report and `--verbose` say of programs that were not helped, or not to their end.

use runahead_abi::session::speculator_exit;
use std::process::ExitStatus;

pub(crate) const MEMORY_SHORT: &str = "memory, its control group's or the machine's, is all but used up";
pub(crate) const BLIND: &str = "some of its code makes, or may make, system calls that cannot be seen";
pub(crate) const UNKNOWN: &str = "some of its code could not be analysed, or was written a moment ago";
pub(crate) const BLIND_LATER: &str =
    "it has loaded code that makes, or may make, system calls that cannot be seen";
pub(crate) const NOT_READY: &str = "large files of its code were not known yet, and some make system calls \
    of their own, or have come and gone: the next run will see them";
pub(crate) const NOT_BEGUN: &str = "nothing of ours has begun in it: it was traced or filtered at its start, or ended before, or a loader ran no program";
pub(crate) const REPLACED: &str =
    "Runahead's files were replaced since the command has begun: the next run will have the new ones";
pub(crate) const GAVE_UP_RIGHTS: &str = "a process gave up rights";
pub(crate) const NOTICED: &str = "a program takes a lease, or watches who opens files";
pub(crate) const OTHER_RIGHTS: &str = "a process has other rights than the host";

/// Why a speculator that has ended so could not begin. None: it has served, or its program was gone.
pub(crate) fn refused_because(status: ExitStatus) -> Option<String> {
    use std::os::unix::process::ExitStatusExt;
    let reason = match (status.code(), status.signal()) {
        (Some(speculator_exit::NO_MEMORY), _) => "there is no room for it in memory",
        (Some(speculator_exit::NO_MIRROR), _) => {
            "the kernel lets it copy no program's memory (neither userfaultfd nor mprotect)"
        }
        (Some(speculator_exit::NOTHING_READ), _) => {
            "the kernel lets it copy no program's memory (process_vm_readv)"
        }
        (Some(speculator_exit::NOTHING_TOLD), _) => {
            "the kernel tells it no program's memory (/proc/PID/pagemap)"
        }
        (Some(speculator_exit::NOT_EXECUTED), _) => "it cannot be executed",
        (Some(speculator_exit::TAKEN), _) => "the program has memory where the speculator has to be",
        (Some(speculator_exit::TOO_MANY_MAPPINGS), _) => "the program has too many mappings",
        (Some(speculator_exit::NO_ADDRESSES), _) => "there are too few addresses for it (ulimit -v)",
        (Some(speculator_exit::NO_SANDBOX), _) => "it cannot be confined (seccomp)",
        (Some(speculator_exit::PANIC), _) => "it came to an end that should not be",
        (Some(speculator_exit::OTHER_RIGHTS), _) => "the program's rights are not its own",
        (None, Some(signal)) if signal != libc::SIGKILL => return Some(format!("signal {signal} ended it")),
        _ => return None,
    };
    Some(reason.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_mended_says_how() {
        let around = runahead_remedies::Surroundings::default();
        // Nobody but its author mends code whose calls cannot be seen.
        let told = [MEMORY_SHORT, UNKNOWN, NOT_READY, NOT_BEGUN, REPLACED, GAVE_UP_RIGHTS, OTHER_RIGHTS];
        for reason in told {
            assert!(runahead_remedies::of(reason, &around).is_some(), "{reason}");
        }
        for reason in [BLIND, BLIND_LATER] {
            assert!(runahead_remedies::of(reason, &around).is_none(), "{reason}");
        }
    }
}
