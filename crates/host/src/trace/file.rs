//! The file of a timeline: valid JSON from its first moment on, however the run and the host end.
//!
//! What closes the document is written behind every piece, and written over by the next one
//! together with what follows. It has one length, so that there is room for it where it stood
//! should the disk be full. What cannot be made valid is emptied.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;

/// Bytes of what closes the document, filled up with blanks.
const CLOSING_BYTES: usize = 256;

/// What is known of the whole at its end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Closing {
    /// The run is over, and nothing is missing but what is said here.
    pub complete: bool,
    pub elapsed_ns: u64,
    pub records: u64,
    /// Events that came faster than they were taken.
    pub lost: u64,
    /// Events for which there was no room, or that were none.
    pub left_out: u64,
}

impl Closing {
    fn text(&self, disk_full: bool) -> String {
        let Closing { complete, elapsed_ns, records, lost, left_out } = self;
        let text = format!(
            "\n],\"runahead\":{{\"complete\":{complete},\"elapsed_ns\":{elapsed_ns},\"records\":{records},\
             \"lost_events\":{lost},\"left_out_events\":{left_out},\"disk_full\":{disk_full}}}}}"
        );
        format!("{text:<width$}\n", width = CLOSING_BYTES - 1)
    }
}

pub struct TraceFile {
    file: File,
    /// Where what closes the document begins.
    end: u64,
    /// Why nothing more can be written.
    failed: Option<io::Error>,
}

impl TraceFile {
    /// `file`: an empty one; `head`: the beginning of the document, with a first record.
    pub fn begin(file: File, head: &str) -> TraceFile {
        let mut begun = TraceFile { file, end: 0, failed: None };
        begun.append(head, &Closing { records: 1, ..Closing::default() });
        begun
    }

    /// Writes `piece`, which may be empty, and what closes the document.
    pub fn append(&mut self, piece: &str, closing: &Closing) {
        if self.failed.is_some() {
            return;
        }
        let text = format!("{piece}{}", closing.text(false));
        match self.file.write_all_at(text.as_bytes(), self.end) {
            Ok(()) => self.end += piece.len() as u64,
            Err(error) => self.give_up(error, closing),
        }
    }

    /// What was written of the latest piece is taken back.
    fn give_up(&mut self, error: io::Error, closing: &Closing) {
        let is_begun = self.end > 0;
        let closing = Closing { complete: false, ..*closing }.text(true);
        let closed = is_begun
            && self.file.write_all_at(closing.as_bytes(), self.end).is_ok()
            && self.file.set_len(self.end + closing.len() as u64).is_ok();
        if !closed {
            let _ = self.file.set_len(0);
        }
        self.failed = Some(error);
    }

    pub fn failed(&self) -> Option<&io::Error> {
        self.failed.as_ref()
    }
}

impl AsRawFd for TraceFile {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
    use serde_json::Value;

    fn read(file: &File) -> Value {
        let mut text = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut text, 0).unwrap();
        serde_json::from_slice(&text).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&text)))
    }

    fn file() -> File {
        File::from(memfd_create("trace", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap())
    }

    #[test]
    fn it_is_whole_after_each_piece() {
        let file = file();
        let mut trace = TraceFile::begin(file.try_clone().unwrap(), "{\"traceEvents\":[\n{}");
        assert_eq!(read(&file)["traceEvents"].as_array().unwrap().len(), 1);
        let most = Closing {
            elapsed_ns: u64::MAX,
            records: u64::MAX,
            lost: u64::MAX,
            left_out: u64::MAX,
            complete: false,
        };
        trace.append(",\n{}", &most);
        assert_eq!(read(&file)["runahead"]["lost_events"], u64::MAX);
        trace.append(",\n{},\n{}", &Closing { complete: true, ..Closing::default() });
        let read = read(&file);
        assert_eq!(
            (read["traceEvents"].as_array().unwrap().len(), &read["runahead"]["complete"]),
            (4, &true.into())
        );
        assert_eq!(read["runahead"]["disk_full"], false);
    }

    #[test]
    fn where_it_cannot_grow_it_stays_whole() {
        let file = file();
        let mut trace = TraceFile::begin(file.try_clone().unwrap(), "{\"traceEvents\":[\n{}");
        trace.append(",\n{}", &Closing::default());
        fcntl_add_seals(&file, SealFlags::GROW).unwrap();
        trace.append(&",\n{}".repeat(3000), &Closing { complete: true, ..Closing::default() });
        let read = read(&file);
        assert_eq!(read["traceEvents"].as_array().unwrap().len(), 2);
        assert_eq!(
            (&read["runahead"]["disk_full"], &read["runahead"]["complete"]),
            (&true.into(), &false.into())
        );
        assert!(trace.failed().is_some());
        trace.append(",\n{}", &Closing::default());
    }

    #[test]
    fn where_nothing_can_be_written_there_is_nothing() {
        let file = file();
        fcntl_add_seals(&file, SealFlags::GROW).unwrap();
        let mut trace = TraceFile::begin(file.try_clone().unwrap(), "{\"traceEvents\":[\n{}");
        trace.append(",\n{}", &Closing::default());
        assert!(trace.failed().is_some());
        assert_eq!(file.metadata().unwrap().len(), 0);
    }
}
