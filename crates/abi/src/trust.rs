//! What has to be true of a file before it is taken for the session, or for the site file.
//!
//! Both are found by numbers (a process id and a descriptor's), and numbers are used again: behind
//! them may be what another user has put there. The session is written to by everybody who maps it,
//! and what is in the site file is written over instructions.

/// What the kernel says of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// `st_mode`.
    pub mode: u32,
    pub owner: u32,
    /// In bytes.
    pub size: u64,
}

/// Why a file or folder is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It could not be opened or looked at: there is no such host, or it is not ours to look at.
    NotThere,
    /// It is something else than a regular file.
    NotAFile,
    /// It is something else than a folder.
    NotAFolder,
    /// It belongs to another user than the one that we act as.
    AnothersFile,
    /// Others than the owner may write to it.
    OthersMayWrite,
    /// It has another size than all sessions have.
    WrongSize,
    /// Its size may still change.
    NotSealed,
    /// It is another session.
    AnotherSession,
}

/// `S_IFMT` and `S_IFREG` of stat(2).
const FILE_TYPE: u32 = 0o170000;
const REGULAR: u32 = 0o100000;
const FOLDER: u32 = 0o040000;

/// Group and others may write.
const OTHERS_WRITE: u32 = 0o022;

/// `F_SEAL_SEAL`, `F_SEAL_SHRINK` and `F_SEAL_GROW` of fcntl(2): the file has for ever the size
/// that it has, and who maps it is never without a page.
pub const SEALS: u32 = 1 | 2 | 4;

/// Whether the file is one of `user`, who is the one that we act as.
fn is_own_file(found: &Found, user: u32) -> Result<(), Refusal> {
    if found.mode & FILE_TYPE != REGULAR { Err(Refusal::NotAFile) } else { is_own(found, user) }
}

/// Whether it, whatever it is, belongs to `user`, and nobody else may write to it.
fn is_own(found: &Found, user: u32) -> Result<(), Refusal> {
    if found.owner != user {
        Err(Refusal::AnothersFile)
    } else if found.mode & OTHERS_WRITE != 0 {
        Err(Refusal::OthersMayWrite)
    } else {
        Ok(())
    }
}

/// Whether the file may be mapped as a session of `size` bytes. (That it is the right one its
/// cookie tells.)
pub fn session(found: &Found, seals: u32, size: u64, user: u32) -> Result<(), Refusal> {
    is_own_file(found, user)?;
    if found.size != size {
        Err(Refusal::WrongSize)
    } else if seals & SEALS != SEALS {
        Err(Refusal::NotSealed)
    } else {
        Ok(())
    }
}

/// Whether what is in the file may be written over instructions.
pub fn site_file(found: &Found, user: u32) -> Result<(), Refusal> {
    is_own_file(found, user)
}

/// Whether what is in the folder was put there by `user`.
pub fn folder(found: &Found, user: u32) -> Result<(), Refusal> {
    if found.mode & FILE_TYPE != FOLDER { Err(Refusal::NotAFolder) } else { is_own(found, user) }
}

/// Whether the file may say where the user's session is.
pub fn published(found: &Found, user: u32) -> Result<(), Refusal> {
    is_own_file(found, user)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 1 << 20;
    const GOOD: Found = Found { mode: 0o100600, owner: 1000, size: SIZE };

    #[test]
    fn a_session_is_a_sealed_file_of_ours() {
        assert_eq!(session(&GOOD, SEALS | 0x20, SIZE, 1000), Ok(()));
        let refused = [
            (Found { mode: 0o10600, ..GOOD }, SEALS, 1000, Refusal::NotAFile),
            (Found { mode: 0o20600, ..GOOD }, SEALS, 1000, Refusal::NotAFile),
            (GOOD, SEALS, 0, Refusal::AnothersFile),
            (GOOD, SEALS, 1001, Refusal::AnothersFile),
            (Found { mode: 0o100620, ..GOOD }, SEALS, 1000, Refusal::OthersMayWrite),
            (Found { mode: 0o100602, ..GOOD }, SEALS, 1000, Refusal::OthersMayWrite),
            (Found { size: SIZE - 1, ..GOOD }, SEALS, 1000, Refusal::WrongSize),
            (GOOD, 0, 1000, Refusal::NotSealed),
            (GOOD, SEALS & !1, 1000, Refusal::NotSealed),
            (GOOD, SEALS & !2, 1000, Refusal::NotSealed),
            (GOOD, SEALS & !4, 1000, Refusal::NotSealed),
        ];
        for (found, seals, user, refusal) in refused {
            assert_eq!(session(&found, seals, SIZE, user), Err(refusal), "{found:?} {seals:#x} {user}");
        }
    }

    #[test]
    fn a_site_file_is_one_that_only_its_owner_writes() {
        assert_eq!(site_file(&GOOD, 1000), Ok(()));
        assert_eq!(site_file(&Found { size: 0, ..GOOD }, 1000), Ok(()));
        assert_eq!(site_file(&GOOD, 0), Err(Refusal::AnothersFile));
        let writable = Found { mode: 0o100666, ..GOOD };
        assert_eq!(site_file(&writable, 1000), Err(Refusal::OthersMayWrite));
        assert_eq!(site_file(&Found { mode: 0o40700, ..GOOD }, 1000), Err(Refusal::NotAFile));
    }

    #[test]
    fn a_folder_is_one_that_only_its_owner_writes() {
        let good = Found { mode: 0o40700, ..GOOD };
        assert_eq!(folder(&good, 1000), Ok(()));
        assert_eq!(folder(&good, 0), Err(Refusal::AnothersFile));
        for mode in [0o40770, 0o40702] {
            assert_eq!(folder(&Found { mode, ..GOOD }, 1000), Err(Refusal::OthersMayWrite));
        }
        assert_eq!(folder(&GOOD, 1000), Err(Refusal::NotAFolder));
        assert_eq!(folder(&Found { mode: 0o120777, ..GOOD }, 1000), Err(Refusal::NotAFolder));
    }
}
