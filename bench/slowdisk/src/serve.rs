//! The daemon: one process for each emulated disk, from `slowdisk up` to `slowdisk down`.

use std::fs;
use std::os::unix::net::UnixListener;

use anyhow::{Context, Result};
use fuser::{Config, MountOption, Session, SessionACL};

use crate::block::BlockFile;
use crate::image::Image;
use crate::model::Model;
use crate::names::Names;
use crate::pacer::Pacer;
use crate::profile::Kind;
use crate::state::State;
use crate::{control, system};

/// Serves the disk `name`, as it is written down, until it is unmounted.
pub fn serve(name: &str) -> Result<()> {
    system::ignore_requests_to_end();
    let state = State::load(name)?.with_context(|| format!("the disk '{name}' is not written down"))?;
    let directory = state.directory();
    let process =
        system::Process::find(std::process::id() as i32).context("cannot find ourselves in /proc")?;
    fs::write(directory.join("pid"), serde_json::to_vec(&process)?)
        .context("cannot write the daemon's pid")?;
    be_punctual();

    let pacer = Pacer::start(Model::new(&state.profile.kind, state.size))
        .context("cannot start the timing thread")?;
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(format!("slowdisk-{name}")),
        MountOption::Subtype("slowdisk".into()),
        MountOption::NoDev,
        MountOption::NoSuid,
    ];
    if matches!(state.profile.kind, Kind::Names { .. }) {
        config.acl = SessionACL::All;
        config.mount_options.extend([MountOption::RO, MountOption::DefaultPermissions]);
        let source = state.source.clone().context("the disk has no source directory")?;
        let session = Session::new(Names::new(source, pacer.clone()), &state.mount, &config);
        listen_and_run(&state, &pacer, session.context("cannot mount the FUSE file system")?)
    } else {
        let image = Image::new(state.size)?;
        let session = Session::new(BlockFile::new(image, pacer.clone()), state.image_mount(), &config);
        listen_and_run(&state, &pacer, session.context("cannot mount the FUSE file system")?)
    }
}

/// The socket appears after the mount: whoever finds it finds a disk that answers.
fn listen_and_run<F: fuser::Filesystem>(state: &State, pacer: &Pacer, session: Session<F>) -> Result<()> {
    // A socket left by a daemon that was killed would be in the way.
    let _ = fs::remove_file(state.socket());
    let listener = UnixListener::bind(state.socket()).context("cannot listen on the control socket")?;
    let answering = pacer.clone();
    std::thread::Builder::new()
        .name("slowdisk-control".into())
        .spawn(move || control::answer(&listener, &answering))
        .context("cannot start the control thread")?;
    session.run().context("serving the disk ended early")
}

/// Real-time priority, exact timers, and last to go when memory runs out: the emulation must hold its
/// times while others compute. Each may be refused, and the self-check then shows what that costs.
///
/// And all memory locked as it is touched, like the [`Image`]: there may be swap on this very disk, and a daemon whose
/// stack lies there waits for itself for ever.
fn be_punctual() {
    // The lowest real-time priority is above every ordinary thread, and below the kernel's own.
    let priority = libc::sched_param { sched_priority: 1 };
    // SAFETY: the calls act on this process alone; the pointer is to a value of our own.
    unsafe {
        libc::sched_setscheduler(0, libc::SCHED_FIFO, &priority);
        libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0);
        libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT);
    }
    let _ = fs::write("/proc/self/oom_score_adj", "-900");
}
