//! Answers seccomp notifications: system calls that change file attributes or connect sockets.
//!
//! A command without namespaces (L1) can name every file of its user, and Landlock has no rule for `chmod`, `chown`,
//! `utime` and `setxattr`. The filter sends these calls to the init helper, which makes them beneath writable
//! directories. No call continues in the kernel: the arguments could change after the check.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
    thread,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::{CWD, Mode, OFlags, ResolveFlags, openat2},
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
        SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
    },
};

use super::{
    attributes::{Request, Roots},
    child::drop_capabilities,
    sys::{self, Notification},
    tree::shows_this_namespace,
    unix_connect,
};

/// A thread that connects needs little.
const CONNECT_STACK: usize = 256 << 10;

/// The channel from the command, which creates the listener, to the supervisor.
pub(super) fn channel() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Sends the listener of a filter to the supervisor.
pub(super) fn send_listener(channel: &OwnedFd, listener: &OwnedFd) -> io::Result<()> {
    let files = [listener.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut buffer = SendAncillaryBuffer::new(&mut space);
    buffer.push(SendAncillaryMessage::ScmRights(&files));
    sendmsg(channel, &[IoSlice::new(&[1])], &mut buffer, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives the listener without waiting; `None` if there is none.
pub(super) fn receive_listener(channel: &OwnedFd) -> Option<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut buffer = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    recvmsg(channel, &mut [IoSliceMut::new(&mut [0])], &mut buffer, flags).ok()?;
    buffer.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    })
}

/// Answers the calls of one command.
pub(super) struct Notifier {
    listener: OwnedFd,
    roots: Roots,
}

impl Notifier {
    /// A path that cannot be opened or has become a link is excluded.
    pub(super) fn new(listener: OwnedFd, roots: &[PathBuf]) -> Self {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = |place| openat2(CWD, place, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS).ok();
        // Threads are looked up in `/proc` by pid, so `/proc` must show this PID namespace.
        let roots = if shows_this_namespace() { roots.iter().filter_map(open).collect() } else { Vec::new() };
        Self { listener, roots: Roots(roots) }
    }

    /// Answers until the command has ended. If this thread ends early, the kernel refuses the calls.
    pub(super) fn start(self) -> io::Result<()> {
        thread::Builder::new().name("helve-notifier".into()).spawn(move || self.serve())?;
        Ok(())
    }

    fn serve(&self) {
        // The command has no capabilities and must not use those of its supervisor.
        if drop_capabilities().is_err() {
            return;
        }
        loop {
            let mut files = [PollFd::new(&self.listener, PollFlags::IN)];
            match poll(&mut files, None) {
                Ok(_) if files[0].revents().contains(PollFlags::IN) => self.answer_next(),
                Err(Errno::INTR) => {}
                _ => return,
            }
        }
    }

    fn answer_next(&self) {
        // A thread that ended meanwhile needs no answer.
        let Ok(notification) = sys::receive_notification(&self.listener) else { return };
        if notification.number == libc::SYS_connect {
            return self.connect(notification);
        }
        let is_waiting = || sys::is_waiting(&self.listener, notification.id);
        let done = Request::read(&notification).and_then(|request| request.perform(&self.roots, is_waiting));
        let error = done.err().map_or(0, Errno::raw_os_error);
        sys::answer_notification(&self.listener, notification.id, error);
    }

    /// Connects on a separate thread: a pending connection must not delay others.
    fn connect(&self, notification: Notification) {
        let id = notification.id;
        let spawned = self.listener.try_clone().and_then(|listener| {
            let work = move || {
                let done = unix_connect::perform(&notification, || sys::is_waiting(&listener, id));
                sys::answer_notification(&listener, id, done.err().map_or(0, Errno::raw_os_error));
            };
            thread::Builder::new().name("helve-connect".into()).stack_size(CONNECT_STACK).spawn(work)
        });
        if spawned.is_err() {
            sys::answer_notification(&self.listener, id, libc::EAGAIN);
        }
    }
}
