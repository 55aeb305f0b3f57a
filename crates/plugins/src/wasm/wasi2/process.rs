//! The program's environment: no arguments, no variables, no terminal; clocks and random numbers.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{
    super::{
        canonical::{HostArgs, HostCall, HostCallError, HostFunction, ResultLayout},
        guest::{HaltReason, WasiErrno},
        handles::{ResourceHandle, WritePosition},
    },
    function_of as of,
};

const ENVIRONMENT: &str = "wasi:cli/environment";
const EXIT: &str = "wasi:cli/exit";
const MONOTONIC: &str = "wasi:clocks/monotonic-clock";
const WALL: &str = "wasi:clocks/wall-clock";
const INSECURE: &str = "wasi:random/insecure";
/// The most random bytes at once.
const MAX_RANDOM_BYTES: u64 = 1024 * 1024;

pub(super) const FUNCTIONS: &[HostFunction] = &[
    of((ENVIRONMENT, "get-environment"), "", ResultLayout::Memory, |desk, _| desk.write_list(4, &[], 0)),
    of((ENVIRONMENT, "get-arguments"), "", ResultLayout::Memory, |desk, _| {
        let name = desk.write_text("tool")?;
        desk.write_list(4, &name, 1)
    }),
    of((ENVIRONMENT, "initial-cwd"), "", ResultLayout::Memory, none_option),
    of((EXIT, "exit"), "i", ResultLayout::Nothing, |_, args| {
        Err(wasmi::Error::i32_exit(i32::from(args.u32(0) != 0)).into())
    }),
    of((EXIT, "exit-with-code"), "i", ResultLayout::Nothing, |_, args| {
        Err(wasmi::Error::i32_exit(args.u32(0) as i32).into())
    }),
    of(("wasi:cli/stdin", "get-stdin"), "", ResultLayout::I32, |desk, _| {
        desk.handle_result(ResourceHandle::Reader { fd: 0, at: 0 })
    }),
    of(("wasi:cli/stdout", "get-stdout"), "", ResultLayout::I32, |desk, _| desk.handle_result(writer(1))),
    of(("wasi:cli/stderr", "get-stderr"), "", ResultLayout::I32, |desk, _| desk.handle_result(writer(2))),
    of(("wasi:cli/terminal-stdin", "get-terminal-stdin"), "", ResultLayout::Memory, none_option),
    of(("wasi:cli/terminal-stdout", "get-terminal-stdout"), "", ResultLayout::Memory, none_option),
    of(("wasi:cli/terminal-stderr", "get-terminal-stderr"), "", ResultLayout::Memory, none_option),
    of((MONOTONIC, "now"), "", ResultLayout::I64, |desk, _| Ok(nanos(desk.guest().elapsed()).to_le_bytes().to_vec())),
    of((MONOTONIC, "resolution"), "", ResultLayout::I64, |_, _| Ok(1_u64.to_le_bytes().to_vec())),
    of((MONOTONIC, "subscribe-instant"), "l", ResultLayout::I32, |desk, args| {
        desk.handle_result(ResourceHandle::Pollable(Duration::from_nanos(args.u64(0))))
    }),
    of((MONOTONIC, "subscribe-duration"), "l", ResultLayout::I32, |desk, args| {
        let until = desk.guest().elapsed().saturating_add(Duration::from_nanos(args.u64(0)));
        desk.handle_result(ResourceHandle::Pollable(until))
    }),
    of((WALL, "now"), "", ResultLayout::Memory, |_, _| {
        Ok(datetime(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()))
    }),
    of((WALL, "resolution"), "", ResultLayout::Memory, |_, _| Ok(datetime(Duration::from_nanos(1)))),
    of(("wasi:random/random", "get-random-bytes"), "l", ResultLayout::Memory, random_bytes),
    of(("wasi:random/random", "get-random-u64"), "", ResultLayout::I64, |_, _| random(8)),
    of((INSECURE, "get-insecure-random-bytes"), "l", ResultLayout::Memory, random_bytes),
    of((INSECURE, "get-insecure-random-u64"), "", ResultLayout::I64, |_, _| random(8)),
    of(("wasi:random/insecure-seed", "insecure-seed"), "", ResultLayout::Memory, |_, _| random(16)),
];

/// An `option` without a value.
#[expect(clippy::unnecessary_wraps)] // One of many functions of this form.
fn none_option(_: &mut HostCall<'_, '_>, _: HostArgs<'_>) -> Result<Vec<u8>, HostCallError> {
    Ok(vec![0])
}

fn writer(fd: u32) -> ResourceHandle {
    ResourceHandle::Writer { fd, at: WritePosition::End }
}

fn random_bytes(desk: &mut HostCall<'_, '_>, args: HostArgs<'_>) -> Result<Vec<u8>, HostCallError> {
    if args.u64(0) > MAX_RANDOM_BYTES {
        return Err(HaltReason::AbiViolation("it wants too many random bytes at once").into());
    }
    let bytes = random(args.u64(0) as usize)?;
    desk.write_list(1, &bytes, bytes.len())
}

fn random(count: usize) -> Result<Vec<u8>, HostCallError> {
    let mut bytes = vec![0; count];
    getrandom::fill(&mut bytes).map_err(|_| WasiErrno::IO)?;
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
