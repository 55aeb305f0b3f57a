//! Streams, pollables and errors. Only clocks are waited for.

use std::time::Duration;

use super::{
    super::{
        canonical::{HostArgs, HostCall, HostCallError, HostFunction, ResultLayout, filesystem_error_code},
        guest::{GuestState, HaltReason, WasiErrno},
        handles::{ResourceHandle, WritePosition},
    },
    function_of as of,
};

const STREAMS: &str = "wasi:io/streams";
const POLL: &str = "wasi:io/poll";
/// The most that one read brings, and that one write is invited to bring.
const MAX_CHUNK_BYTES: u64 = 64 * 1024;
/// How many clocks may be waited for at once.
const MAX_POLLABLES: u32 = 1024;

pub(super) const FUNCTIONS: &[HostFunction] = &[
    of((STREAMS, "[method]input-stream.read"), "il", ResultLayout::OrStreamError(4), read),
    of((STREAMS, "[method]input-stream.blocking-read"), "il", ResultLayout::OrStreamError(4), read),
    of((STREAMS, "[method]input-stream.skip"), "il", ResultLayout::OrStreamError(8), skip),
    of((STREAMS, "[method]input-stream.blocking-skip"), "il", ResultLayout::OrStreamError(8), skip),
    of((STREAMS, "[method]input-stream.subscribe"), "i", ResultLayout::I32, always_ready),
    of((STREAMS, "[method]output-stream.check-write"), "i", ResultLayout::OrStreamError(8), |desk, args| {
        writer(desk, args)?;
        Ok(MAX_CHUNK_BYTES.to_le_bytes().to_vec())
    }),
    of((STREAMS, "[method]output-stream.write"), "iii", ResultLayout::OrStreamError(4), write),
    of((STREAMS, "[method]output-stream.blocking-write-and-flush"), "iii", ResultLayout::OrStreamError(4), write),
    of((STREAMS, "[method]output-stream.flush"), "i", ResultLayout::OrStreamError(4), flush),
    of((STREAMS, "[method]output-stream.blocking-flush"), "i", ResultLayout::OrStreamError(4), flush),
    of((STREAMS, "[method]output-stream.subscribe"), "i", ResultLayout::I32, always_ready),
    of((STREAMS, "[method]output-stream.write-zeroes"), "il", ResultLayout::OrStreamError(4), zeroes),
    of(
        (STREAMS, "[method]output-stream.blocking-write-zeroes-and-flush"),
        "il",
        ResultLayout::OrStreamError(4),
        zeroes,
    ),
    of((STREAMS, "[method]output-stream.splice"), "iil", ResultLayout::OrStreamError(8), splice),
    of((STREAMS, "[method]output-stream.blocking-splice"), "iil", ResultLayout::OrStreamError(8), splice),
    of(("wasi:io/error", "[method]error.to-debug-string"), "i", ResultLayout::Memory, |desk, args| {
        let errno = failure(desk, args)?;
        desk.write_text(&format!("error {}", errno.0))
    }),
    of(("wasi:filesystem/types", "filesystem-error-code"), "i", ResultLayout::Memory, |desk, args| {
        Ok(vec![1, filesystem_error_code(failure(desk, args)?)])
    }),
    of((POLL, "[method]pollable.ready"), "i", ResultLayout::I32, |desk, args| {
        let until = pollable_deadline(desk, args.u32(0))?;
        Ok(vec![u8::from(until <= desk.guest().elapsed())])
    }),
    of((POLL, "[method]pollable.block"), "i", ResultLayout::Nothing, |desk, args| {
        let until = pollable_deadline(desk, args.u32(0))?;
        sleep(desk, until)?;
        Ok(Vec::new())
    }),
    of((POLL, "poll"), "ii", ResultLayout::Memory, poll),
];

fn read(desk: &mut HostCall<'_, '_>, args: HostArgs<'_>) -> Result<Vec<u8>, HostCallError> {
    let bytes = take_bytes(desk, args.u32(0), args.u64(1))?;
    desk.write_list(1, &bytes, bytes.len())
}

fn skip(desk: &mut HostCall<'_, '_>, args: HostArgs<'_>) -> Result<Vec<u8>, HostCallError> {
    let bytes = take_bytes(desk, args.u32(0), args.u64(1))?;
    Ok((bytes.len() as u64).to_le_bytes().to_vec())
}

/// What a stream has next; it moves on.
fn take_bytes(desk: &mut HostCall<'_, '_>, stream: u32, most: u64) -> Result<Vec<u8>, HostCallError> {
    let ResourceHandle::Reader { fd, at } = *desk.handles().get(stream)? else { return Err(WRONG_HANDLE_TYPE.into()) };
    let mut bytes = vec![0; most.min(MAX_CHUNK_BYTES) as usize];
    let guest = desk.guest();
    let count = if fd == 0 { guest.read(fd, &mut bytes)? } else { guest.files.read_at(fd, at, &mut bytes)? };
    if count == 0 && most > 0 {
        return Err(HostCallError::Closed);
    }
    bytes.truncate(count);
    *desk.handles().get(stream)? = ResourceHandle::Reader { fd, at: at.saturating_add(count as u64) };
    Ok(bytes)
}

fn write(desk: &mut HostCall<'_, '_>, args: HostArgs<'_>) -> Result<Vec<u8>, HostCallError> {
    let mut to = writer(desk, args)?;
    desk.with((args.u32(1), args.u32(2)), |bytes, guest| {
        to.put(guest, bytes)?;
        Ok(())
    })?;
    to.store_position(desk, args)
}

fn zeroes(desk: &mut HostCall<'_, '_>, args: HostArgs<'_>) -> Result<Vec<u8>, HostCallError> {
    if args.u64(1) > MAX_CHUNK_BYTES {
        return Err(HaltReason::AbiViolation("it writes more than it was invited to").into());
    }
    let mut to = writer(desk, args)?;
    to.put(desk.guest(), &vec![0; args.u64(1) as usize])?;
    to.store_position(desk, args)
}

fn splice(desk: &mut HostCall<'_, '_>, args: HostArgs<'_>) -> Result<Vec<u8>, HostCallError> {
    let mut to = writer(desk, args)?;
    let bytes = take_bytes(desk, args.u32(1), args.u64(2))?;
    to.put(desk.guest(), &bytes)?;
    to.store_position(desk, args)?;
    Ok((bytes.len() as u64).to_le_bytes().to_vec())
}

/// Bytes are where they belong as soon as they are written; the file on disk changes when it is closed.
fn flush(desk: &mut HostCall<'_, '_>, args: HostArgs<'_>) -> Result<Vec<u8>, HostCallError> {
    writer(desk, args)?;
    Ok(Vec::new())
}

/// Where a stream writes next.
struct StreamWriter {
    fd: u32,
    at: WritePosition,
}

impl StreamWriter {
    fn put(&mut self, guest: &mut GuestState, bytes: &[u8]) -> Result<(), HostCallError> {
        if self.fd <= 2 {
            guest.write(self.fd, bytes)?;
            return Ok(());
        }
        match &mut self.at {
            WritePosition::End => {
                let end = guest.files.attributes(self.fd)?.size;
                guest.files.write_at(self.fd, end, bytes)?;
            }
            WritePosition::At(at) => {
                guest.files.write_at(self.fd, *at, bytes)?;
                *at = at.saturating_add(bytes.len() as u64);
            }
        }
        Ok(())
    }

    fn store_position(self, desk: &mut HostCall<'_, '_>, args: HostArgs<'_>) -> Result<Vec<u8>, HostCallError> {
        *desk.handles().get(args.u32(0))? = ResourceHandle::Writer { fd: self.fd, at: self.at };
        Ok(Vec::new())
    }
}

fn writer(desk: &mut HostCall<'_, '_>, args: HostArgs<'_>) -> Result<StreamWriter, HaltReason> {
    match *desk.handles().get(args.u32(0))? {
        ResourceHandle::Writer { fd, at } => Ok(StreamWriter { fd, at }),
        _ => Err(WRONG_HANDLE_TYPE),
    }
}

fn failure(desk: &mut HostCall<'_, '_>, args: HostArgs<'_>) -> Result<WasiErrno, HaltReason> {
    match desk.handles().get(args.u32(0))? {
        ResourceHandle::StreamError(errno) => Ok(*errno),
        _ => Err(WRONG_HANDLE_TYPE),
    }
}

fn always_ready(desk: &mut HostCall<'_, '_>, args: HostArgs<'_>) -> Result<Vec<u8>, HostCallError> {
    desk.handles().get(args.u32(0))?;
    desk.handle_result(ResourceHandle::Pollable(Duration::ZERO))
}

fn pollable_deadline(desk: &mut HostCall<'_, '_>, number: u32) -> Result<Duration, HaltReason> {
    match desk.handles().get(number)? {
        ResourceHandle::Pollable(until) => Ok(*until),
        _ => Err(WRONG_HANDLE_TYPE),
    }
}

/// Waits until the call is so old.
fn sleep(desk: &mut HostCall<'_, '_>, until: Duration) -> Result<(), HostCallError> {
    let guest = desk.guest();
    let time = until.saturating_sub(guest.elapsed());
    if !time.is_zero() {
        guest.files.sleep(time)?;
    }
    Ok(())
}

fn poll(desk: &mut HostCall<'_, '_>, args: HostArgs<'_>) -> Result<Vec<u8>, HostCallError> {
    let count = args.u32(1);
    if !(1..=MAX_POLLABLES).contains(&count) {
        return Err(HaltReason::AbiViolation("it waits for nothing, or for too much").into());
    }
    let numbers: Vec<u32> = desk.with((args.u32(0), count * 4), |bytes, _| {
        let words = bytes.chunks_exact(4).map(|it| it.try_into().map_or(0, u32::from_le_bytes));
        Ok(words.collect())
    })?;
    let waits = numbers.into_iter().map(|it| pollable_deadline(desk, it)).collect::<Result<Vec<_>, _>>()?;
    let first = waits.iter().min().copied().unwrap_or_default();
    sleep(desk, first)?;
    let age = desk.guest().elapsed().max(first);
    let ready = (0_u32..).zip(waits).filter(|(_, until)| *until <= age).map(|(index, _)| index);
    let ready: Vec<_> = ready.flat_map(u32::to_le_bytes).collect();
    desk.write_list(4, &ready, ready.len() / 4)
}

const WRONG_HANDLE_TYPE: HaltReason = HaltReason::AbiViolation("it takes one thing for another");
