//! Files and folders, as `wasi:filesystem` has them.

use std::time::UNIX_EPOCH;

use helve_contract::ports::Kind;

use super::{
    super::{
        canonical::{Args, Desk, Function, Gives, Stop},
        files::{About, Open, Wish},
        guest::{Errno, Halt},
        handles::{Handle, Place},
    },
    function_of as of,
    process::datetime,
};

const TYPES: &str = "wasi:filesystem/types";
/// The most that one read brings.
const CHUNK: u64 = 1024 * 1024;

pub(super) const FUNCTIONS: &[Function] = &[
    of(("wasi:filesystem/preopens", "get-directories"), "", Gives::Memory, |desk, _| {
        let mounts = desk.guest().files.preopened();
        let mut rows = Vec::new();
        for (fd, name) in &mounts {
            rows.extend(desk.held(Handle::Descriptor(*fd))?);
            rows.extend(desk.text(name)?);
        }
        desk.list(4, &rows, mounts.len())
    }),
    of((TYPES, "[method]descriptor.read-via-stream"), "il", Gives::OrCode(4), |desk, args| {
        let fd = file(desk, args)?;
        desk.held(Handle::Reader { fd, at: args.u64(1) })
    }),
    of((TYPES, "[method]descriptor.write-via-stream"), "il", Gives::OrCode(4), |desk, args| {
        let fd = file(desk, args)?;
        desk.held(Handle::Writer { fd, at: Place::At(args.u64(1)) })
    }),
    of((TYPES, "[method]descriptor.append-via-stream"), "i", Gives::OrCode(4), |desk, args| {
        let fd = file(desk, args)?;
        desk.held(Handle::Writer { fd, at: Place::End })
    }),
    of((TYPES, "[method]descriptor.advise"), "illi", Gives::OrCode(1), |desk, args| {
        file(desk, args)?;
        Ok(Vec::new())
    }),
    of((TYPES, "[method]descriptor.sync-data"), "i", Gives::OrCode(1), sync),
    of((TYPES, "[method]descriptor.sync"), "i", Gives::OrCode(1), sync),
    of((TYPES, "[method]descriptor.get-flags"), "i", Gives::OrCode(1), |desk, args| {
        let fd = descriptor(desk, args.u32(0))?;
        let (read, write) = desk.guest().files.rights(fd)?;
        Ok(vec![u8::from(read) | u8::from(write) << 1])
    }),
    of((TYPES, "[method]descriptor.get-type"), "i", Gives::OrCode(1), |desk, args| {
        let fd = descriptor(desk, args.u32(0))?;
        Ok(vec![kind(desk.guest().files.about(fd)?.kind)])
    }),
    of((TYPES, "[method]descriptor.set-size"), "il", Gives::OrCode(1), |desk, args| {
        let fd = file(desk, args)?;
        desk.guest().files.resize(fd, args.u64(1))?;
        Ok(Vec::new())
    }),
    of((TYPES, "[method]descriptor.set-times"), "iiliili", Gives::OrCode(1), not_there),
    of((TYPES, "[method]descriptor.set-times-at"), "iiiiiliili", Gives::OrCode(1), not_there),
    of((TYPES, "[method]descriptor.read"), "ill", Gives::OrCode(4), read),
    of((TYPES, "[method]descriptor.write"), "iiil", Gives::OrCode(8), |desk, args| {
        let fd = file(desk, args)?;
        let count =
            desk.with((args.u32(1), args.u32(2)), |bytes, guest| Ok(guest.files.write_at(fd, args.u64(3), bytes)?))?;
        Ok((count as u64).to_le_bytes().to_vec())
    }),
    of((TYPES, "[method]descriptor.read-directory"), "i", Gives::OrCode(4), |desk, args| {
        let fd = descriptor(desk, args.u32(0))?;
        let mut rows = desk.guest().files.list(fd, 0)?.to_vec();
        rows.reverse();
        desk.held(Handle::Listing(rows))
    }),
    of((TYPES, "[method]directory-entry-stream.read-directory-entry"), "i", Gives::OrCode(4), next_row),
    of((TYPES, "[method]descriptor.create-directory-at"), "iii", Gives::OrCode(1), |desk, args| {
        let fd = descriptor(desk, args.u32(0))?;
        desk.with_text((args.u32(1), args.u32(2)), |path, guest| guest.files.make(fd, path))?;
        Ok(Vec::new())
    }),
    of((TYPES, "[method]descriptor.stat"), "i", Gives::OrCode(8), |desk, args| {
        let fd = descriptor(desk, args.u32(0))?;
        Ok(told(&desk.guest().files.about(fd)?))
    }),
    of((TYPES, "[method]descriptor.stat-at"), "iiii", Gives::OrCode(8), |desk, args| Ok(told(&stat_at(desk, args)?))),
    of((TYPES, "[method]descriptor.link-at"), "iiiiiii", Gives::OrCode(1), not_there),
    of((TYPES, "[method]descriptor.open-at"), "iiiiii", Gives::OrCode(4), open),
    of((TYPES, "[method]descriptor.readlink-at"), "iii", Gives::OrCode(4), not_there),
    of((TYPES, "[method]descriptor.remove-directory-at"), "iii", Gives::OrCode(1), |desk, args| {
        let fd = descriptor(desk, args.u32(0))?;
        desk.with_text((args.u32(1), args.u32(2)), |path, guest| guest.files.remove(fd, path))?;
        Ok(Vec::new())
    }),
    of((TYPES, "[method]descriptor.rename-at"), "iiiiii", Gives::OrCode(1), |desk, args| {
        let (from, to) = (descriptor(desk, args.u32(0))?, descriptor(desk, args.u32(3))?);
        let old = desk.with_text((args.u32(1), args.u32(2)), |path, _| Ok(path.to_owned()))?;
        desk.with_text((args.u32(4), args.u32(5)), |new, guest| guest.files.rename((from, &old), (to, new)))?;
        Ok(Vec::new())
    }),
    of((TYPES, "[method]descriptor.symlink-at"), "iiiii", Gives::OrCode(1), not_there),
    of((TYPES, "[method]descriptor.unlink-file-at"), "iii", Gives::OrCode(1), |desk, args| {
        let fd = descriptor(desk, args.u32(0))?;
        desk.with_text((args.u32(1), args.u32(2)), |path, guest| guest.files.unlink(fd, path))?;
        Ok(Vec::new())
    }),
    of((TYPES, "[method]descriptor.is-same-object"), "ii", Gives::I32, |desk, args| {
        let (one, two) = (descriptor(desk, args.u32(0))?, descriptor(desk, args.u32(1))?);
        let files = &desk.guest().files;
        Ok(vec![u8::from(one == two || files.about(one)?.number == files.about(two)?.number)])
    }),
    of((TYPES, "[method]descriptor.metadata-hash"), "i", Gives::OrCode(8), |desk, args| {
        let fd = descriptor(desk, args.u32(0))?;
        Ok(number(&desk.guest().files.about(fd)?))
    }),
    of((TYPES, "[method]descriptor.metadata-hash-at"), "iiii", Gives::OrCode(8), |desk, args| {
        Ok(number(&stat_at(desk, args)?))
    }),
];

/// The open file or folder that a number stands for.
fn descriptor(desk: &mut Desk<'_, '_>, number: u32) -> Result<u32, Halt> {
    match desk.handles().get(number)? {
        Handle::Descriptor(fd) => Ok(*fd),
        _ => Err(Halt::Misuse("it takes one thing for another")),
    }
}

/// The same, where only a file will do.
fn file(desk: &mut Desk<'_, '_>, args: Args<'_>) -> Result<u32, Stop> {
    let fd = descriptor(desk, args.u32(0))?;
    match desk.guest().files.get(fd)? {
        Open::File(_) => Ok(fd),
        _ => Err(Errno::ISDIR.into()),
    }
}

fn not_there(desk: &mut Desk<'_, '_>, args: Args<'_>) -> Result<Vec<u8>, Stop> {
    descriptor(desk, args.u32(0))?;
    Err(Errno::NOTSUP.into())
}

fn sync(desk: &mut Desk<'_, '_>, args: Args<'_>) -> Result<Vec<u8>, Stop> {
    let fd = descriptor(desk, args.u32(0))?;
    desk.guest().files.sync(fd)?;
    Ok(Vec::new())
}

fn read(desk: &mut Desk<'_, '_>, args: Args<'_>) -> Result<Vec<u8>, Stop> {
    let fd = file(desk, args)?;
    let mut bytes = vec![0; args.u64(1).min(CHUNK) as usize];
    let count = desk.guest().files.read_at(fd, args.u64(2), &mut bytes)?;
    bytes.truncate(count);
    let is_end = count == 0 && args.u64(1) > 0;
    let mut list = desk.list(1, &bytes, count)?;
    list.push(u8::from(is_end));
    Ok(list)
}

fn next_row(desk: &mut Desk<'_, '_>, args: Args<'_>) -> Result<Vec<u8>, Stop> {
    let Handle::Listing(rows) = desk.handles().get(args.u32(0))? else {
        return Err(Halt::Misuse("it takes one thing for another").into());
    };
    let Some(row) = rows.pop() else { return Ok(vec![0]) };
    let mut bytes = vec![1, 0, 0, 0, kind(row.kind), 0, 0, 0];
    bytes.extend(desk.text(&row.name)?);
    Ok(bytes)
}

fn open(desk: &mut Desk<'_, '_>, args: Args<'_>) -> Result<Vec<u8>, Stop> {
    let fd = descriptor(desk, args.u32(0))?;
    let (how, rights) = (args.u32(4), args.u32(5));
    let wish = Wish {
        read: rights & 1 != 0,
        write: rights & 2 != 0,
        create: how & 1 != 0,
        folder: how & 2 != 0,
        exclusive: how & 4 != 0,
        truncate: how & 8 != 0,
        append: false,
    };
    let opened = desk.with_text((args.u32(2), args.u32(3)), |path, guest| guest.files.open(fd, path, &wish))?;
    desk.held(Handle::Descriptor(opened))
}

fn stat_at(desk: &mut Desk<'_, '_>, args: Args<'_>) -> Result<About, Stop> {
    let fd = descriptor(desk, args.u32(0))?;
    desk.with_text((args.u32(2), args.u32(3)), |path, guest| guest.files.stat(fd, path))
}

fn kind(kind: Kind) -> u8 {
    match kind {
        Kind::Other => 0,
        Kind::Folder => 3,
        Kind::Link => 5,
        Kind::File => 6,
    }
}

/// What there is to know, as it lies in memory: the kind, one link, the size, and three times.
fn told(about: &About) -> Vec<u8> {
    let mut bytes = vec![kind(about.kind), 0, 0, 0, 0, 0, 0, 0];
    bytes.extend_from_slice(&1_u64.to_le_bytes());
    bytes.extend_from_slice(&about.size.to_le_bytes());
    let time = about.modified.and_then(|it| it.duration_since(UNIX_EPOCH).ok());
    for _ in 0..3 {
        bytes.extend_from_slice(&[u8::from(time.is_some()), 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend(datetime(time.unwrap_or_default()));
    }
    bytes
}

/// The same number for the same place.
fn number(about: &About) -> Vec<u8> {
    [about.number.to_le_bytes(), [0; 8]].concat()
}
