//! Between a component and the functions it is given: arguments and results, as the canonical ABI lays them out.

use std::panic::{AssertUnwindSafe, catch_unwind};

use wasmi::{Caller, Func, FuncType, Memory, TrapCode, Val, ValType};

use super::{
    guest::{Errno, Fault, Guest, Halt},
    handles::{Handle, Handles},
    wasi::Ram,
};

/// Steps that a component may take to find room for what it asked for, beside those it has left in this slice.
const ROOM: u64 = 1_000_000;

/// A function that components may import.
pub(super) struct Function {
    pub(super) interface: &'static str,
    pub(super) name: &'static str,
    /// The kind of each argument: `i` for 32 bits, `l` for 64.
    pub(super) takes: &'static str,
    pub(super) gives: Gives,
    pub(super) work: Work,
}

/// Does what a function is for. What comes back is the result as it lies in memory.
pub(super) type Work = fn(&mut Desk<'_, '_>, Args<'_>) -> Result<Vec<u8>, Stop>;

/// How a result goes back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Gives {
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

impl Function {
    /// The type of the core function that stands for it.
    pub(super) fn kind(&self) -> FuncType {
        let place = if matches!(self.gives, Gives::Nothing | Gives::I32 | Gives::I64) { "" } else { "i" };
        let takes = self.takes.chars().chain(place.chars());
        let takes: Vec<_> = takes.map(|it| if it == 'l' { ValType::I64 } else { ValType::I32 }).collect();
        let gives = match self.gives {
            Gives::I32 => Some(ValType::I32),
            Gives::I64 => Some(ValType::I64),
            _ => None,
        };
        FuncType::new(takes, gives)
    }

    /// Does a call.
    pub(super) fn serve(
        &self,
        caller: &mut Caller<'_, Guest>,
        (memory, realloc): (Option<Memory>, Option<Func>),
        args: &[Val],
        results: &mut [Val],
    ) -> Result<(), wasmi::Error> {
        let guest = caller.data();
        guest.may_go_on()?;
        if guest.is_finding_room {
            return Err(Halt::Misuse("it calls the host while the host waits for room").into());
        }
        let mut desk = Desk { caller, memory, realloc };
        let args = Args(args);
        // A panic cannot pass through the interpreter: it would end the whole process.
        let done = catch_unwind(AssertUnwindSafe(|| (self.work)(&mut desk, args)));
        let done = done.unwrap_or(Err(Halt::Broken.into()));
        match self.gives {
            Gives::Nothing => drop(done.map_err(Stop::hard)?),
            Gives::I32 | Gives::I64 => {
                let bytes = done.map_err(Stop::hard)?;
                let mut wide = [0; 8];
                wide.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
                if let [result] = results {
                    let number = u64::from_le_bytes(wide);
                    *result = if self.gives == Gives::I32 { Val::I32(number as i32) } else { Val::I64(number as i64) };
                }
            }
            Gives::Memory => desk.put(args.last(), &done.map_err(Stop::hard)?)?,
            Gives::OrCode(at) => match done {
                Ok(bytes) => desk.put_result(args.last(), at, &[0], &bytes)?,
                Err(Stop::Errno(errno)) => desk.put_result(args.last(), at, &[1], &[code(errno)])?,
                Err(stop) => return Err(stop.hard()),
            },
            Gives::OrStreamError(at) => match done {
                Ok(bytes) => desk.put_result(args.last(), at, &[0], &bytes)?,
                Err(Stop::Errno(errno)) => {
                    let number = desk.hold(Handle::Failure(errno))?.to_le_bytes();
                    let bytes = [&[0; 4], &number[..]].concat();
                    desk.put_result(args.last(), at, &[1], &bytes)?;
                }
                Err(Stop::Closed) => desk.put_result(args.last(), at, &[1], &[1])?,
                Err(stop) => return Err(stop.hard()),
            },
        }
        Ok(())
    }
}

/// The arguments of a call.
#[derive(Clone, Copy)]
pub(super) struct Args<'a>(&'a [Val]);

impl Args<'_> {
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
pub(super) struct Desk<'a, 'c> {
    caller: &'a mut Caller<'c, Guest>,
    memory: Option<Memory>,
    realloc: Option<Func>,
}

impl Desk<'_, '_> {
    pub(super) fn guest(&mut self) -> &mut Guest {
        self.caller.data_mut()
    }

    pub(super) fn handles(&mut self) -> &mut Handles {
        &mut self.guest().handles
    }

    pub(super) fn hold(&mut self, handle: Handle) -> Result<u32, Halt> {
        self.handles().add(handle)
    }

    /// The same, as a result.
    pub(super) fn held(&mut self, handle: Handle) -> Result<Vec<u8>, Stop> {
        Ok(self.hold(handle)?.to_le_bytes().to_vec())
    }

    fn ram(&mut self) -> Result<(Ram<'_>, &mut Guest), Halt> {
        let memory = self.memory.ok_or(Halt::Misuse("it gives the host no memory to work with"))?;
        let (bytes, guest) = memory.data_and_store_mut(&mut *self.caller);
        Ok((Ram(bytes), guest))
    }

    /// Works on bytes of the component's memory.
    pub(super) fn with<T>(
        &mut self,
        (at, len): (u32, u32),
        work: impl FnOnce(&[u8], &mut Guest) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
        let (ram, guest) = self.ram()?;
        work(ram.get(at, len).map_err(|_| OUTSIDE)?, guest)
    }

    /// Works on a text in the component's memory.
    pub(super) fn with_text<T>(
        &mut self,
        place: (u32, u32),
        work: impl FnOnce(&str, &mut Guest) -> Result<T, Fault>,
    ) -> Result<T, Stop> {
        self.with(place, |bytes, guest| {
            let text = std::str::from_utf8(bytes).map_err(|_| Halt::Misuse("a text of it is not UTF-8"))?;
            Ok(work(text, guest)?)
        })
    }

    fn put(&mut self, at: u32, bytes: &[u8]) -> Result<(), Halt> {
        let (mut ram, _) = self.ram()?;
        ram.put(at, bytes).map_err(|_| OUTSIDE)
    }

    fn put_result(&mut self, at: u32, distance: u32, tag: &[u8], bytes: &[u8]) -> Result<(), Halt> {
        self.put(at, tag)?;
        self.put(at.checked_add(distance).ok_or(OUTSIDE)?, bytes)
    }

    /// Puts bytes where the component finds room for them. What comes back names the place, as lists and texts do.
    pub(super) fn list(&mut self, align: u32, bytes: &[u8], count: usize) -> Result<Vec<u8>, Stop> {
        let at = if bytes.is_empty() { align } else { self.room(align, bytes.len() as u32)? };
        self.put(at, bytes)?;
        Ok([at.to_le_bytes(), (count as u32).to_le_bytes()].concat())
    }

    /// A text, as [`Desk::list`] says.
    pub(super) fn text(&mut self, text: &str) -> Result<Vec<u8>, Stop> {
        self.list(1, text.as_bytes(), text.len())
    }

    fn room(&mut self, align: u32, size: u32) -> Result<u32, Stop> {
        let realloc = self.realloc.ok_or(Halt::Misuse("it gives the host no way to ask for room"))?;
        let realloc = realloc.typed::<(u32, u32, u32, u32), u32>(&*self.caller)?;
        // A slice may be nearly used up, and this call cannot be cut in two.
        let fuel = self.caller.get_fuel()?;
        self.caller.set_fuel(fuel.saturating_add(ROOM))?;
        self.guest().is_finding_room = true;
        let at = realloc.call(&mut *self.caller, (0, 0, align, size));
        self.guest().is_finding_room = false;
        let fuel = self.caller.get_fuel()?;
        self.caller.set_fuel(fuel.saturating_sub(ROOM))?;
        let at = at.map_err(|error| match error.as_trap_code() {
            Some(TrapCode::OutOfFuel) => Halt::Misuse("it takes too long to find room").into(),
            _ => error,
        })?;
        if at % align == 0 { Ok(at) } else { Err(Halt::Misuse("its room is not aligned").into()) }
    }
}

const OUTSIDE: Halt = Halt::Misuse("a place of it is outside of its memory");

/// Why a component does not get what it asked for.
pub(super) enum Stop {
    /// It is told so, and goes on.
    Errno(Errno),
    /// A stream is at its end.
    Closed,
    /// It is ended.
    Hard(wasmi::Error),
}

impl Stop {
    /// Where nothing can be told, it is ended.
    fn hard(self) -> wasmi::Error {
        match self {
            Self::Hard(error) => error,
            Self::Errno(_) | Self::Closed => Halt::Broken.into(),
        }
    }
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl From<Halt> for Stop {
    fn from(halt: Halt) -> Self {
        Self::Hard(halt.into())
    }
}

impl From<wasmi::Error> for Stop {
    fn from(error: wasmi::Error) -> Self {
        Self::Hard(error)
    }
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Errno(errno) => errno.into(),
            Fault::Halt(halt) => halt.into(),
        }
    }
}

/// An error number in the words of `wasi:filesystem`.
pub(super) fn code(errno: Errno) -> u8 {
    match errno {
        Errno::ACCES => 0,
        Errno::BADF => 3,
        Errno::BUSY => 4,
        Errno::EXIST => 7,
        Errno::FBIG => 8,
        Errno::ILSEQ => 9,
        Errno::INVAL => 12,
        Errno::ISDIR => 14,
        Errno::LOOP => 15,
        Errno::NAMETOOLONG => 18,
        Errno::NOENT => 20,
        Errno::MFILE => 22,
        Errno::NOSPC => 23,
        Errno::NOTDIR => 24,
        Errno::NOTEMPTY => 25,
        Errno::NOTSUP | Errno::NOSYS => 27,
        Errno::NOTCAPABLE => 31,
        Errno::ROFS => 33,
        Errno::SPIPE => 34,
        // Among them a file that somebody else changed in the meantime.
        _ => 13,
    }
}
