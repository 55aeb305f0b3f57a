//! Host functions of components: arguments and results in the canonical ABI.

use std::panic::{AssertUnwindSafe, catch_unwind};

use wasmi::{Caller, Func, FuncType, Memory, TrapCode, Val, ValType};

use super::{
    guest::{GuestError, GuestState, HaltReason, WasiErrno},
    handles::{HandleTable, ResourceHandle},
    wasi::GuestMemory,
};

/// Additional fuel for a component's allocation of results.
const REALLOC_FUEL: u64 = 1_000_000;

/// A function that components may import.
pub(super) struct HostFunction {
    pub(super) interface: &'static str,
    pub(super) name: &'static str,
    /// The kind of each argument: `i` for 32 bits, `l` for 64.
    pub(super) params: &'static str,
    pub(super) result: ResultLayout,
    pub(super) work: HostFn,
}

/// Does what a function is for. What comes back is the result as it lies in memory.
pub(super) type HostFn = fn(&mut HostCall<'_, '_>, HostArgs<'_>) -> Result<Vec<u8>, HostCallError>;

/// How a result goes back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ResultLayout {
    Nothing,
    I32,
    I64,
    /// Written to the place that the last argument names.
    Memory,
    /// The same, as a `result` with an error code of files; the good value begins at this distance.
    OrCode(u32),
    /// The same, with an error of streams.
    OrStreamError(u32),
}

impl HostFunction {
    /// The type of the core function that stands for it.
    pub(super) fn kind(&self) -> FuncType {
        let place =
            if matches!(self.result, ResultLayout::Nothing | ResultLayout::I32 | ResultLayout::I64) { "" } else { "i" };
        let takes = self.params.chars().chain(place.chars());
        let takes: Vec<_> = takes.map(|it| if it == 'l' { ValType::I64 } else { ValType::I32 }).collect();
        let gives = match self.result {
            ResultLayout::I32 => Some(ValType::I32),
            ResultLayout::I64 => Some(ValType::I64),
            _ => None,
        };
        FuncType::new(takes, gives)
    }

    /// Does a call.
    pub(super) fn serve(
        &self,
        caller: &mut Caller<'_, GuestState>,
        (memory, realloc): (Option<Memory>, Option<Func>),
        args: &[Val],
        results: &mut [Val],
    ) -> Result<(), wasmi::Error> {
        let guest = caller.data();
        guest.check_running()?;
        if guest.in_realloc {
            return Err(HaltReason::AbiViolation("it calls the host while the host waits for room").into());
        }
        let mut desk = HostCall { caller, memory, realloc };
        let args = HostArgs(args);
        // A panic must not unwind through the interpreter: it would abort the process.
        let done = catch_unwind(AssertUnwindSafe(|| (self.work)(&mut desk, args)));
        let done = done.unwrap_or(Err(HaltReason::Internal.into()));
        match self.result {
            ResultLayout::Nothing => drop(done.map_err(HostCallError::into_trap)?),
            ResultLayout::I32 | ResultLayout::I64 => {
                let bytes = done.map_err(HostCallError::into_trap)?;
                let mut wide = [0; 8];
                wide.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
                if let [result] = results {
                    let number = u64::from_le_bytes(wide);
                    *result = if self.result == ResultLayout::I32 {
                        Val::I32(number as i32)
                    } else {
                        Val::I64(number as i64)
                    };
                }
            }
            ResultLayout::Memory => desk.put(args.last(), &done.map_err(HostCallError::into_trap)?)?,
            ResultLayout::OrCode(at) => match done {
                Ok(bytes) => desk.put_result(args.last(), at, &[0], &bytes)?,
                Err(HostCallError::Errno(errno)) => {
                    desk.put_result(args.last(), at, &[1], &[filesystem_error_code(errno)])?;
                }
                Err(stop) => return Err(stop.into_trap()),
            },
            ResultLayout::OrStreamError(at) => match done {
                Ok(bytes) => desk.put_result(args.last(), at, &[0], &bytes)?,
                Err(HostCallError::Errno(errno)) => {
                    let number = desk.add_handle(ResourceHandle::StreamError(errno))?.to_le_bytes();
                    let bytes = [&[0; 4], &number[..]].concat();
                    desk.put_result(args.last(), at, &[1], &bytes)?;
                }
                Err(HostCallError::Closed) => desk.put_result(args.last(), at, &[1], &[1])?,
                Err(stop) => return Err(stop.into_trap()),
            },
        }
        Ok(())
    }
}

/// The arguments of a call.
#[derive(Clone, Copy)]
pub(super) struct HostArgs<'a>(&'a [Val]);

impl HostArgs<'_> {
    pub(super) fn u32(self, index: usize) -> u32 {
        self.u64(index) as u32
    }

    pub(super) fn u64(self, index: usize) -> u64 {
        match self.0.get(index) {
            Some(Val::I32(value)) => u64::from(*value as u32),
            Some(Val::I64(value)) => *value as u64,
            _ => 0,
        }
    }

    fn last(self) -> u32 {
        self.u32(self.0.len().saturating_sub(1))
    }
}

/// Where a call is served: what belongs to it, and the component's memory.
pub(super) struct HostCall<'a, 'c> {
    caller: &'a mut Caller<'c, GuestState>,
    memory: Option<Memory>,
    realloc: Option<Func>,
}

impl HostCall<'_, '_> {
    pub(super) fn guest(&mut self) -> &mut GuestState {
        self.caller.data_mut()
    }

    pub(super) fn handles(&mut self) -> &mut HandleTable {
        &mut self.guest().handles
    }

    pub(super) fn add_handle(&mut self, handle: ResourceHandle) -> Result<u32, HaltReason> {
        self.handles().add(handle)
    }

    /// The same, as a result.
    pub(super) fn handle_result(&mut self, handle: ResourceHandle) -> Result<Vec<u8>, HostCallError> {
        Ok(self.add_handle(handle)?.to_le_bytes().to_vec())
    }

    fn memory(&mut self) -> Result<(GuestMemory<'_>, &mut GuestState), HaltReason> {
        let memory = self.memory.ok_or(HaltReason::AbiViolation("it gives the host no memory to work with"))?;
        let (bytes, guest) = memory.data_and_store_mut(&mut *self.caller);
        Ok((GuestMemory(bytes), guest))
    }

    /// Works on bytes of the component's memory.
    pub(super) fn with<T>(
        &mut self,
        (at, len): (u32, u32),
        work: impl FnOnce(&[u8], &mut GuestState) -> Result<T, HostCallError>,
    ) -> Result<T, HostCallError> {
        let (ram, guest) = self.memory()?;
        work(ram.get(at, len).map_err(|_| OUT_OF_BOUNDS)?, guest)
    }

    /// Works on a text in the component's memory.
    pub(super) fn with_text<T>(
        &mut self,
        place: (u32, u32),
        work: impl FnOnce(&str, &mut GuestState) -> Result<T, GuestError>,
    ) -> Result<T, HostCallError> {
        self.with(place, |bytes, guest| {
            let text = std::str::from_utf8(bytes).map_err(|_| HaltReason::AbiViolation("a text of it is not UTF-8"))?;
            Ok(work(text, guest)?)
        })
    }

    fn put(&mut self, at: u32, bytes: &[u8]) -> Result<(), HaltReason> {
        let (mut ram, _) = self.memory()?;
        ram.put(at, bytes).map_err(|_| OUT_OF_BOUNDS)
    }

    fn put_result(&mut self, at: u32, distance: u32, tag: &[u8], bytes: &[u8]) -> Result<(), HaltReason> {
        self.put(at, tag)?;
        self.put(at.checked_add(distance).ok_or(OUT_OF_BOUNDS)?, bytes)
    }

    /// Puts bytes where the component finds room for them. What comes back names the place, as lists and texts do.
    pub(super) fn write_list(&mut self, align: u32, bytes: &[u8], count: usize) -> Result<Vec<u8>, HostCallError> {
        let at = if bytes.is_empty() { align } else { self.realloc(align, bytes.len() as u32)? };
        self.put(at, bytes)?;
        Ok([at.to_le_bytes(), (count as u32).to_le_bytes()].concat())
    }

    /// A text, as [`HostCall::write_list`] says.
    pub(super) fn write_text(&mut self, text: &str) -> Result<Vec<u8>, HostCallError> {
        self.write_list(1, text.as_bytes(), text.len())
    }

    fn realloc(&mut self, align: u32, size: u32) -> Result<u32, HostCallError> {
        let realloc = self.realloc.ok_or(HaltReason::AbiViolation("it gives the host no way to ask for room"))?;
        let realloc = realloc.typed::<(u32, u32, u32, u32), u32>(&*self.caller)?;
        // The fuel slice may be nearly used up, and this call cannot be interrupted.
        let fuel = self.caller.get_fuel()?;
        self.caller.set_fuel(fuel.saturating_add(REALLOC_FUEL))?;
        self.guest().in_realloc = true;
        let at = realloc.call(&mut *self.caller, (0, 0, align, size));
        self.guest().in_realloc = false;
        let fuel = self.caller.get_fuel()?;
        self.caller.set_fuel(fuel.saturating_sub(REALLOC_FUEL))?;
        let at = at.map_err(|error| match error.as_trap_code() {
            Some(TrapCode::OutOfFuel) => HaltReason::AbiViolation("it takes too long to find room").into(),
            _ => error,
        })?;
        if at % align == 0 { Ok(at) } else { Err(HaltReason::AbiViolation("its room is not aligned").into()) }
    }
}

const OUT_OF_BOUNDS: HaltReason = HaltReason::AbiViolation("a place of it is outside of its memory");

/// Why a component does not get what it asked for.
pub(super) enum HostCallError {
    /// The component gets this error and continues.
    Errno(WasiErrno),
    /// A stream is at its end.
    Closed,
    /// The component is ended.
    Trap(wasmi::Error),
}

impl HostCallError {
    /// Ends the component if the error cannot be returned.
    fn into_trap(self) -> wasmi::Error {
        match self {
            Self::Trap(error) => error,
            Self::Errno(_) | Self::Closed => HaltReason::Internal.into(),
        }
    }
}

impl From<WasiErrno> for HostCallError {
    fn from(errno: WasiErrno) -> Self {
        Self::Errno(errno)
    }
}

impl From<HaltReason> for HostCallError {
    fn from(halt: HaltReason) -> Self {
        Self::Trap(halt.into())
    }
}

impl From<wasmi::Error> for HostCallError {
    fn from(error: wasmi::Error) -> Self {
        Self::Trap(error)
    }
}

impl From<GuestError> for HostCallError {
    fn from(fault: GuestError) -> Self {
        match fault {
            GuestError::Errno(errno) => errno.into(),
            GuestError::Halt(halt) => halt.into(),
        }
    }
}

/// An error number in the words of `wasi:filesystem`.
pub(super) fn filesystem_error_code(errno: WasiErrno) -> u8 {
    match errno {
        WasiErrno::ACCES => 0,
        WasiErrno::BADF => 3,
        WasiErrno::BUSY => 4,
        WasiErrno::EXIST => 7,
        WasiErrno::FBIG => 8,
        WasiErrno::ILSEQ => 9,
        WasiErrno::INVAL => 12,
        WasiErrno::ISDIR => 14,
        WasiErrno::LOOP => 15,
        WasiErrno::NAMETOOLONG => 18,
        WasiErrno::NOENT => 20,
        WasiErrno::MFILE => 22,
        WasiErrno::NOSPC => 23,
        WasiErrno::NOTDIR => 24,
        WasiErrno::NOTEMPTY => 25,
        WasiErrno::NOTSUP | WasiErrno::NOSYS => 27,
        WasiErrno::NOTCAPABLE => 31,
        WasiErrno::ROFS => 33,
        WasiErrno::SPIPE => 34,
        // Among them a file that somebody else changed in the meantime.
        _ => 13,
    }
}
