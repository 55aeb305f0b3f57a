//! What a program knows of its surroundings: no arguments, no environment, no terminal; clocks and random numbers.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{
    super::{
        canonical::{Args, Desk, Function, Gives, Stop},
        guest::{Errno, Halt},
        handles::{Handle, Place},
    },
    function_of as of,
};

const ENVIRONMENT: &str = "wasi:cli/environment";
const EXIT: &str = "wasi:cli/exit";
const MONOTONIC: &str = "wasi:clocks/monotonic-clock";
const WALL: &str = "wasi:clocks/wall-clock";
const INSECURE: &str = "wasi:random/insecure";
/// The most random bytes at once.
const MOST: u64 = 1024 * 1024;

pub(super) const FUNCTIONS: &[Function] = &[
    of((ENVIRONMENT, "get-environment"), "", Gives::Memory, |desk, _| desk.list(4, &[], 0)),
    of((ENVIRONMENT, "get-arguments"), "", Gives::Memory, |desk, _| {
        let name = desk.text("tool")?;
        desk.list(4, &name, 1)
    }),
    of((ENVIRONMENT, "initial-cwd"), "", Gives::Memory, none),
    of((EXIT, "exit"), "i", Gives::Nothing, |_, args| Err(wasmi::Error::i32_exit(i32::from(args.u32(0) != 0)).into())),
    of((EXIT, "exit-with-code"), "i", Gives::Nothing, |_, args| Err(wasmi::Error::i32_exit(args.u32(0) as i32).into())),
    of(("wasi:cli/stdin", "get-stdin"), "", Gives::I32, |desk, _| desk.held(Handle::Reader { fd: 0, at: 0 })),
    of(("wasi:cli/stdout", "get-stdout"), "", Gives::I32, |desk, _| desk.held(writer(1))),
    of(("wasi:cli/stderr", "get-stderr"), "", Gives::I32, |desk, _| desk.held(writer(2))),
    of(("wasi:cli/terminal-stdin", "get-terminal-stdin"), "", Gives::Memory, none),
    of(("wasi:cli/terminal-stdout", "get-terminal-stdout"), "", Gives::Memory, none),
    of(("wasi:cli/terminal-stderr", "get-terminal-stderr"), "", Gives::Memory, none),
    of((MONOTONIC, "now"), "", Gives::I64, |desk, _| Ok(nanos(desk.guest().age()).to_le_bytes().to_vec())),
    of((MONOTONIC, "resolution"), "", Gives::I64, |_, _| Ok(1_u64.to_le_bytes().to_vec())),
    of((MONOTONIC, "subscribe-instant"), "l", Gives::I32, |desk, args| {
        desk.held(Handle::Wait(Duration::from_nanos(args.u64(0))))
    }),
    of((MONOTONIC, "subscribe-duration"), "l", Gives::I32, |desk, args| {
        let until = desk.guest().age().saturating_add(Duration::from_nanos(args.u64(0)));
        desk.held(Handle::Wait(until))
    }),
    of((WALL, "now"), "", Gives::Memory, |_, _| {
        Ok(datetime(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()))
    }),
    of((WALL, "resolution"), "", Gives::Memory, |_, _| Ok(datetime(Duration::from_nanos(1)))),
    of(("wasi:random/random", "get-random-bytes"), "l", Gives::Memory, random_bytes),
    of(("wasi:random/random", "get-random-u64"), "", Gives::I64, |_, _| random(8)),
    of((INSECURE, "get-insecure-random-bytes"), "l", Gives::Memory, random_bytes),
    of((INSECURE, "get-insecure-random-u64"), "", Gives::I64, |_, _| random(8)),
    of(("wasi:random/insecure-seed", "insecure-seed"), "", Gives::Memory, |_, _| random(16)),
];

/// An `option` without a value.
#[expect(clippy::unnecessary_wraps)] // One of many functions of this form.
fn none(_: &mut Desk<'_, '_>, _: Args<'_>) -> Result<Vec<u8>, Stop> {
    Ok(vec![0])
}

fn writer(fd: u32) -> Handle {
    Handle::Writer { fd, at: Place::End }
}

fn random_bytes(desk: &mut Desk<'_, '_>, args: Args<'_>) -> Result<Vec<u8>, Stop> {
    if args.u64(0) > MOST {
        return Err(Halt::Misuse("it wants too many random bytes at once").into());
    }
    let bytes = random(args.u64(0) as usize)?;
    desk.list(1, &bytes, bytes.len())
}

fn random(count: usize) -> Result<Vec<u8>, Stop> {
    let mut bytes = vec![0; count];
    getrandom::fill(&mut bytes).map_err(|_| Errno::IO)?;
    Ok(bytes)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A point in time, as it lies in memory.
pub(super) fn datetime(time: Duration) -> Vec<u8> {
    let mut bytes = time.as_secs().to_le_bytes().to_vec();
    bytes.extend_from_slice(&time.subsec_nanos().to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes
}
