//! The disk as one big file: a FUSE file system that holds `disk` and nothing else.
//!
//! The file is opened with direct I/O, so every read or write of the loop device above reaches us as
//! a request and none is answered from a cache. Requests are at most 128 KB ([`REQUEST_BYTES`]), as a
//! disk's own limit would have it; larger ones arrive in parts, in parallel.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite,
    Request, WriteFlags,
};

use crate::image::Image;
use crate::pacer::Pacer;

/// The name of the one file.
pub const FILE_NAME: &str = "disk";
const FILE: INodeNo = INodeNo(2);

/// The largest request. 128 KB is the kernel's read-ahead by default, and what FUSE grants at least.
pub const REQUEST_BYTES: u32 = 128 << 10;

/// Requests that may be in flight at once; the kernel's default of 12 would be the disk's limit
/// instead of the model's.
pub const IN_FLIGHT: u16 = 4096;

/// Nothing ever changes but the bytes.
const FOREVER: Duration = Duration::from_secs(1_000_000);

pub struct BlockFile {
    image: Arc<Image>,
    pacer: Pacer,
}

impl BlockFile {
    pub fn new(image: Image, pacer: Pacer) -> BlockFile {
        BlockFile { image: Arc::new(image), pacer }
    }

    fn attributes(&self, inode: INodeNo) -> Option<FileAttr> {
        let directory = inode == INodeNo::ROOT;
        (directory || inode == FILE).then(|| FileAttr {
            ino: inode,
            size: if directory { 0 } else { self.image.size() },
            blocks: if directory { 0 } else { self.image.size() / 512 },
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if directory { FileType::Directory } else { FileType::RegularFile },
            perm: if directory { 0o700 } else { 0o600 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }
}

thread_local! {
    /// Where an answer's bytes are put together; grows to the largest request, then stays.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Filesystem for BlockFile {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        widen(config);
        // Without it the kernel sends the parts of an asynchronous direct read one after another.
        config
            .add_capabilities(InitFlags::FUSE_ASYNC_DIO)
            .map_err(|_| io::Error::other("this kernel's FUSE has no asynchronous direct I/O"))
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attributes(FILE) {
            Some(attributes) if parent == INodeNo::ROOT && name == FILE_NAME => {
                reply.entry(&FOREVER, &attributes, Generation(0));
            }
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _request: &Request, inode: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(inode) {
            Some(attributes) => reply.attr(&FOREVER, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _request: &Request, _inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES);
    }

    fn read(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let image = self.image.clone();
        let answer = move || {
            BUFFER.with_borrow_mut(|buffer| {
                if buffer.len() < size as usize {
                    buffer.resize(size as usize, 0);
                }
                let copied = image.read_at(offset, &mut buffer[..size as usize]);
                reply.data(&buffer[..copied]);
            });
        };
        self.pacer.submit(offset, u64::from(size), Box::new(answer));
    }

    fn write(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // The bytes are on the disk at once, the word of it comes in time: no copy of them is kept.
        let written = self.image.write_at(offset, data);
        self.pacer.submit(offset, data.len() as u64, Box::new(move || reply.written(written as u32)));
    }

    fn fsync(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _data: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn flush(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }
}

/// Room for as many requests as the model can serve.
pub fn widen(config: &mut KernelConfig) {
    // Each call fails only for a value out of the crate's or the kernel's range, and then the kernel's
    // own limit stays: the self-check would show it.
    let _ = config.set_max_background(IN_FLIGHT);
    let _ = config.set_congestion_threshold(IN_FLIGHT);
    let _ = config.set_max_write(REQUEST_BYTES);
    let _ = config.set_max_readahead(REQUEST_BYTES);
}
