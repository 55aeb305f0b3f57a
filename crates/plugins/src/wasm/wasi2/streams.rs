//! Streams, what to wait for, and why something failed. Nothing here comes in slowly: only clocks are waited for.

use std::time::Duration;

use super::{
    super::{
        canonical::{Args, Desk, Function, Gives, Stop, code},
        guest::{Errno, Guest, Halt},
        handles::{Handle, Place},
    },
    function_of as of,
};

const STREAMS: &str = "wasi:io/streams";
const POLL: &str = "wasi:io/poll";
/// The most that one read brings, and that one write is invited to bring.
const CHUNK: u64 = 64 * 1024;
/// How many clocks may be waited for at once.
const MANY: u32 = 1024;

pub(super) const FUNCTIONS: &[Function] = &[
    of((STREAMS, "[method]input-stream.read"), "il", Gives::OrStreamError(4), read),
    of((STREAMS, "[method]input-stream.blocking-read"), "il", Gives::OrStreamError(4), read),
    of((STREAMS, "[method]input-stream.skip"), "il", Gives::OrStreamError(8), skip),
    of((STREAMS, "[method]input-stream.blocking-skip"), "il", Gives::OrStreamError(8), skip),
    of((STREAMS, "[method]input-stream.subscribe"), "i", Gives::I32, at_once),
    of((STREAMS, "[method]output-stream.check-write"), "i", Gives::OrStreamError(8), |desk, args| {
        writer(desk, args)?;
        Ok(CHUNK.to_le_bytes().to_vec())
    }),
    of((STREAMS, "[method]output-stream.write"), "iii", Gives::OrStreamError(4), write),
    of((STREAMS, "[method]output-stream.blocking-write-and-flush"), "iii", Gives::OrStreamError(4), write),
    of((STREAMS, "[method]output-stream.flush"), "i", Gives::OrStreamError(4), flush),
    of((STREAMS, "[method]output-stream.blocking-flush"), "i", Gives::OrStreamError(4), flush),
    of((STREAMS, "[method]output-stream.subscribe"), "i", Gives::I32, at_once),
    of((STREAMS, "[method]output-stream.write-zeroes"), "il", Gives::OrStreamError(4), zeroes),
    of((STREAMS, "[method]output-stream.blocking-write-zeroes-and-flush"), "il", Gives::OrStreamError(4), zeroes),
    of((STREAMS, "[method]output-stream.splice"), "iil", Gives::OrStreamError(8), splice),
    of((STREAMS, "[method]output-stream.blocking-splice"), "iil", Gives::OrStreamError(8), splice),
    of(("wasi:io/error", "[method]error.to-debug-string"), "i", Gives::Memory, |desk, args| {
        let errno = failure(desk, args)?;
        desk.text(&format!("error {}", errno.0))
    }),
    of(("wasi:filesystem/types", "filesystem-error-code"), "i", Gives::Memory, |desk, args| {
        Ok(vec![1, code(failure(desk, args)?)])
    }),
    of((POLL, "[method]pollable.ready"), "i", Gives::I32, |desk, args| {
        let until = wait(desk, args.u32(0))?;
        Ok(vec![u8::from(until <= desk.guest().age())])
    }),
    of((POLL, "[method]pollable.block"), "i", Gives::Nothing, |desk, args| {
        let until = wait(desk, args.u32(0))?;
        sleep(desk, until)?;
        Ok(Vec::new())
    }),
    of((POLL, "poll"), "ii", Gives::Memory, poll),
];

fn read(desk: &mut Desk<'_, '_>, args: Args<'_>) -> Result<Vec<u8>, Stop> {
    let bytes = taken(desk, args.u32(0), args.u64(1))?;
    desk.list(1, &bytes, bytes.len())
}

fn skip(desk: &mut Desk<'_, '_>, args: Args<'_>) -> Result<Vec<u8>, Stop> {
    let bytes = taken(desk, args.u32(0), args.u64(1))?;
    Ok((bytes.len() as u64).to_le_bytes().to_vec())
}

/// What a stream has next; it moves on.
fn taken(desk: &mut Desk<'_, '_>, stream: u32, most: u64) -> Result<Vec<u8>, Stop> {
    let Handle::Reader { fd, at } = *desk.handles().get(stream)? else { return Err(OTHER.into()) };
    let mut bytes = vec![0; most.min(CHUNK) as usize];
    let guest = desk.guest();
    let count = if fd == 0 { guest.read(fd, &mut bytes)? } else { guest.files.read_at(fd, at, &mut bytes)? };
    if count == 0 && most > 0 {
        return Err(Stop::Closed);
    }
    bytes.truncate(count);
    *desk.handles().get(stream)? = Handle::Reader { fd, at: at.saturating_add(count as u64) };
    Ok(bytes)
}

fn write(desk: &mut Desk<'_, '_>, args: Args<'_>) -> Result<Vec<u8>, Stop> {
    let mut to = writer(desk, args)?;
    desk.with((args.u32(1), args.u32(2)), |bytes, guest| {
        to.put(guest, bytes)?;
        Ok(())
    })?;
    to.moved(desk, args)
}

fn zeroes(desk: &mut Desk<'_, '_>, args: Args<'_>) -> Result<Vec<u8>, Stop> {
    if args.u64(1) > CHUNK {
        return Err(Halt::Misuse("it writes more than it was invited to").into());
    }
    let mut to = writer(desk, args)?;
    to.put(desk.guest(), &vec![0; args.u64(1) as usize])?;
    to.moved(desk, args)
}

fn splice(desk: &mut Desk<'_, '_>, args: Args<'_>) -> Result<Vec<u8>, Stop> {
    let mut to = writer(desk, args)?;
    let bytes = taken(desk, args.u32(1), args.u64(2))?;
    to.put(desk.guest(), &bytes)?;
    to.moved(desk, args)?;
    Ok((bytes.len() as u64).to_le_bytes().to_vec())
}

/// Bytes are where they belong as soon as they are written; the file on disk changes when it is closed.
fn flush(desk: &mut Desk<'_, '_>, args: Args<'_>) -> Result<Vec<u8>, Stop> {
    writer(desk, args)?;
    Ok(Vec::new())
}

/// Where a stream writes next.
struct Writer {
    fd: u32,
    at: Place,
}

impl Writer {
    fn put(&mut self, guest: &mut Guest, bytes: &[u8]) -> Result<(), Stop> {
        if self.fd <= 2 {
            guest.write(self.fd, bytes)?;
            return Ok(());
        }
        match &mut self.at {
            Place::End => {
                let end = guest.files.about(self.fd)?.size;
                guest.files.write_at(self.fd, end, bytes)?;
            }
            Place::At(at) => {
                guest.files.write_at(self.fd, *at, bytes)?;
                *at = at.saturating_add(bytes.len() as u64);
            }
        }
        Ok(())
    }

    fn moved(self, desk: &mut Desk<'_, '_>, args: Args<'_>) -> Result<Vec<u8>, Stop> {
        *desk.handles().get(args.u32(0))? = Handle::Writer { fd: self.fd, at: self.at };
        Ok(Vec::new())
    }
}

fn writer(desk: &mut Desk<'_, '_>, args: Args<'_>) -> Result<Writer, Halt> {
    match *desk.handles().get(args.u32(0))? {
        Handle::Writer { fd, at } => Ok(Writer { fd, at }),
        _ => Err(OTHER),
    }
}

fn failure(desk: &mut Desk<'_, '_>, args: Args<'_>) -> Result<Errno, Halt> {
    match desk.handles().get(args.u32(0))? {
        Handle::Failure(errno) => Ok(*errno),
        _ => Err(OTHER),
    }
}

fn at_once(desk: &mut Desk<'_, '_>, args: Args<'_>) -> Result<Vec<u8>, Stop> {
    desk.handles().get(args.u32(0))?;
    desk.held(Handle::Wait(Duration::ZERO))
}

fn wait(desk: &mut Desk<'_, '_>, number: u32) -> Result<Duration, Halt> {
    match desk.handles().get(number)? {
        Handle::Wait(until) => Ok(*until),
        _ => Err(OTHER),
    }
}

/// Waits until the call is so old.
fn sleep(desk: &mut Desk<'_, '_>, until: Duration) -> Result<(), Stop> {
    let guest = desk.guest();
    let time = until.saturating_sub(guest.age());
    if !time.is_zero() {
        guest.files.sleep(time)?;
    }
    Ok(())
}

fn poll(desk: &mut Desk<'_, '_>, args: Args<'_>) -> Result<Vec<u8>, Stop> {
    let count = args.u32(1);
    if !(1..=MANY).contains(&count) {
        return Err(Halt::Misuse("it waits for nothing, or for too much").into());
    }
    let numbers: Vec<u32> = desk.with((args.u32(0), count * 4), |bytes, _| {
        let words = bytes.chunks_exact(4).map(|it| it.try_into().map_or(0, u32::from_le_bytes));
        Ok(words.collect())
    })?;
    let waits = numbers.into_iter().map(|it| wait(desk, it)).collect::<Result<Vec<_>, _>>()?;
    let first = waits.iter().min().copied().unwrap_or_default();
    sleep(desk, first)?;
    let age = desk.guest().age().max(first);
    let ready = (0_u32..).zip(waits).filter(|(_, until)| *until <= age).map(|(index, _)| index);
    let ready: Vec<_> = ready.flat_map(u32::to_le_bytes).collect();
    desk.list(4, &ready, ready.len() / 4)
}

const OTHER: Halt = Halt::Misuse("it takes one thing for another");
