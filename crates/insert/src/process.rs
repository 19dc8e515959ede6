//! Another process's memory (process_vm_readv(2)). Whatever is asked for may be garbage, and then there is an
//! error.

use crate::PAGE;
use std::io;

/// Reads and writes a process's memory, as whoever may trace it may.
#[derive(Clone, Copy, Debug)]
pub struct Bytes(pub libc::pid_t);

impl Bytes {
    /// Exactly as much as `to` is long.
    pub fn read(self, address: u64, to: &mut [u8]) -> io::Result<()> {
        let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
        let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: to.len() };
        // SAFETY: the local piece is `to`; the kernel checks the remote one.
        let got = unsafe { libc::process_vm_readv(self.0, &local, 1, &remote, 1, 0) };
        whole(got, to.len())
    }

    /// Exactly as much as `from` is long. What may only be read stays as it is, and is an error.
    pub fn write(self, address: u64, from: &[u8]) -> io::Result<()> {
        let local = libc::iovec { iov_base: from.as_ptr().cast_mut().cast(), iov_len: from.len() };
        let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: from.len() };
        // SAFETY: as above; the local piece is only read.
        let put = unsafe { libc::process_vm_writev(self.0, &local, 1, &remote, 1, 0) };
        whole(put, from.len())
    }
}

fn whole(moved: isize, wanted: usize) -> io::Result<()> {
    match moved {
        -1 => Err(io::Error::last_os_error()),
        moved if moved as usize == wanted => Ok(()),
        _ => Err(io::Error::from_raw_os_error(libc::EFAULT)),
    }
}

/// `length` bytes at `address`.
pub fn bytes_at(process: Bytes, address: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    process.read(address, &mut bytes)?;
    Ok(bytes)
}

/// The string at `address`, without its end, if that comes within `most` bytes.
pub fn string_at(process: Bytes, address: u64, most: usize) -> io::Result<Vec<u8>> {
    let mut found = Vec::new();
    while found.len() < most {
        let at = address.wrapping_add(found.len() as u64);
        let length = (PAGE - at % PAGE).min((most - found.len()) as u64).min(256) as usize;
        let piece = bytes_at(process, at, length)?;
        if let Some(end) = piece.iter().position(|&byte| byte == 0) {
            found.extend_from_slice(&piece[..end]);
            return Ok(found);
        }
        found.extend_from_slice(&piece);
    }
    Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_end_where_they_end_and_garbage_is_an_error() {
        let own = Bytes(std::process::id() as i32);
        let text = [&[b'x'; 1000][..], b"\0y"].concat();
        let address = text.as_ptr() as u64;
        assert_eq!(string_at(own, address, 4096).unwrap(), [b'x'; 1000]);
        assert!(string_at(own, address, 999).is_err());
        assert!(string_at(own, 16, 100).is_err());
        assert!(bytes_at(own, u64::MAX - 4, 8).is_err());
    }
}
