//! Files and directories, as `wasi:filesystem` has them.

use std::time::UNIX_EPOCH;

use helve_contract::ports::FileKind;

use super::{
    super::{
        canonical::{HostArgs, HostCall, HostCallError, HostFunction, ResultLayout},
        files::{Descriptor, FileAttributes, OpenFlags},
        guest::{HaltReason, WasiErrno},
        handles::{ResourceHandle, WritePosition},
    },
    function_of as of,
    process::datetime,
};

const TYPES: &str = "wasi:filesystem/types";
/// The most that one read brings.
const MAX_READ_BYTES: u64 = 1024 * 1024;

pub(super) const FUNCTIONS: &[HostFunction] = &[
    of(("wasi:filesystem/preopens", "get-directories"), "", ResultLayout::Memory, |desk, _| {
        let mounts = desk.guest().files.preopened();
        let mut rows = Vec::new();
        for (fd, name) in &mounts {
            rows.extend(desk.handle_result(ResourceHandle::Descriptor(*fd))?);
            rows.extend(desk.write_text(name)?);
        }
        desk.write_list(4, &rows, mounts.len())
    }),
    of((TYPES, "[method]descriptor.read-via-stream"), "il", ResultLayout::OrCode(4), |desk, args| {
        let fd = file(desk, args)?;
        desk.handle_result(ResourceHandle::Reader { fd, at: args.u64(1) })
    }),
    of((TYPES, "[method]descriptor.write-via-stream"), "il", ResultLayout::OrCode(4), |desk, args| {
        let fd = file(desk, args)?;
        desk.handle_result(ResourceHandle::Writer { fd, at: WritePosition::At(args.u64(1)) })
    }),
    of((TYPES, "[method]descriptor.append-via-stream"), "i", ResultLayout::OrCode(4), |desk, args| {
        let fd = file(desk, args)?;
        desk.handle_result(ResourceHandle::Writer { fd, at: WritePosition::End })
    }),
    of((TYPES, "[method]descriptor.advise"), "illi", ResultLayout::OrCode(1), |desk, args| {
        file(desk, args)?;
        Ok(Vec::new())
    }),
    of((TYPES, "[method]descriptor.sync-data"), "i", ResultLayout::OrCode(1), sync),
    of((TYPES, "[method]descriptor.sync"), "i", ResultLayout::OrCode(1), sync),
    of((TYPES, "[method]descriptor.get-flags"), "i", ResultLayout::OrCode(1), |desk, args| {
        let fd = descriptor(desk, args.u32(0))?;
        let (read, write) = desk.guest().files.rights(fd)?;
        Ok(vec![u8::from(read) | u8::from(write) << 1])
    }),
    of((TYPES, "[method]descriptor.get-type"), "i", ResultLayout::OrCode(1), |desk, args| {
        let fd = descriptor(desk, args.u32(0))?;
        Ok(vec![kind(desk.guest().files.attributes(fd)?.kind)])
    }),
    of((TYPES, "[method]descriptor.set-size"), "il", ResultLayout::OrCode(1), |desk, args| {
        let fd = file(desk, args)?;
        desk.guest().files.resize(fd, args.u64(1))?;
        Ok(Vec::new())
    }),
    of((TYPES, "[method]descriptor.set-times"), "iiliili", ResultLayout::OrCode(1), unsupported),
    of((TYPES, "[method]descriptor.set-times-at"), "iiiiiliili", ResultLayout::OrCode(1), unsupported),
    of((TYPES, "[method]descriptor.read"), "ill", ResultLayout::OrCode(4), read),
    of((TYPES, "[method]descriptor.write"), "iiil", ResultLayout::OrCode(8), |desk, args| {
        let fd = file(desk, args)?;
        let count =
            desk.with((args.u32(1), args.u32(2)), |bytes, guest| Ok(guest.files.write_at(fd, args.u64(3), bytes)?))?;
        Ok((count as u64).to_le_bytes().to_vec())
    }),
    of((TYPES, "[method]descriptor.read-directory"), "i", ResultLayout::OrCode(4), |desk, args| {
        let fd = descriptor(desk, args.u32(0))?;
        let mut rows = desk.guest().files.list(fd, 0)?.to_vec();
        rows.reverse();
        desk.handle_result(ResourceHandle::Listing(rows))
    }),
    of(
        (TYPES, "[method]directory-entry-stream.read-directory-entry"),
        "i",
        ResultLayout::OrCode(4),
        read_directory_entry,
    ),
    of((TYPES, "[method]descriptor.create-directory-at"), "iii", ResultLayout::OrCode(1), |desk, args| {
        let fd = descriptor(desk, args.u32(0))?;
        desk.with_text((args.u32(1), args.u32(2)), |path, guest| guest.files.create_dir(fd, path))?;
        Ok(Vec::new())
    }),
    of((TYPES, "[method]descriptor.stat"), "i", ResultLayout::OrCode(8), |desk, args| {
        let fd = descriptor(desk, args.u32(0))?;
        Ok(encode_stat(&desk.guest().files.attributes(fd)?))
    }),
    of((TYPES, "[method]descriptor.stat-at"), "iiii", ResultLayout::OrCode(8), |desk, args| {
        Ok(encode_stat(&stat_at(desk, args)?))
    }),
    of((TYPES, "[method]descriptor.link-at"), "iiiiiii", ResultLayout::OrCode(1), unsupported),
    of((TYPES, "[method]descriptor.open-at"), "iiiiii", ResultLayout::OrCode(4), open),
    of((TYPES, "[method]descriptor.readlink-at"), "iii", ResultLayout::OrCode(4), unsupported),
    of((TYPES, "[method]descriptor.remove-directory-at"), "iii", ResultLayout::OrCode(1), |desk, args| {
        let fd = descriptor(desk, args.u32(0))?;
        desk.with_text((args.u32(1), args.u32(2)), |path, guest| guest.files.remove(fd, path))?;
        Ok(Vec::new())
    }),
    of((TYPES, "[method]descriptor.rename-at"), "iiiiii", ResultLayout::OrCode(1), |desk, args| {
        let (from, to) = (descriptor(desk, args.u32(0))?, descriptor(desk, args.u32(3))?);
        let old = desk.with_text((args.u32(1), args.u32(2)), |path, _| Ok(path.to_owned()))?;
        desk.with_text((args.u32(4), args.u32(5)), |new, guest| guest.files.rename((from, &old), (to, new)))?;
        Ok(Vec::new())
    }),
    of((TYPES, "[method]descriptor.symlink-at"), "iiiii", ResultLayout::OrCode(1), unsupported),
    of((TYPES, "[method]descriptor.unlink-file-at"), "iii", ResultLayout::OrCode(1), |desk, args| {
        let fd = descriptor(desk, args.u32(0))?;
        desk.with_text((args.u32(1), args.u32(2)), |path, guest| guest.files.unlink(fd, path))?;
        Ok(Vec::new())
    }),
    of((TYPES, "[method]descriptor.is-same-object"), "ii", ResultLayout::I32, |desk, args| {
        let (one, two) = (descriptor(desk, args.u32(0))?, descriptor(desk, args.u32(1))?);
        let files = &desk.guest().files;
        Ok(vec![u8::from(one == two || files.attributes(one)?.number == files.attributes(two)?.number)])
    }),
    of((TYPES, "[method]descriptor.metadata-hash"), "i", ResultLayout::OrCode(8), |desk, args| {
        let fd = descriptor(desk, args.u32(0))?;
        Ok(encode_metadata_hash(&desk.guest().files.attributes(fd)?))
    }),
    of((TYPES, "[method]descriptor.metadata-hash-at"), "iiii", ResultLayout::OrCode(8), |desk, args| {
        Ok(encode_metadata_hash(&stat_at(desk, args)?))
    }),
];

/// The open file or directory that a number stands for.
fn descriptor(desk: &mut HostCall<'_, '_>, number: u32) -> Result<u32, HaltReason> {
    match desk.handles().get(number)? {
        ResourceHandle::Descriptor(fd) => Ok(*fd),
        _ => Err(HaltReason::AbiViolation("it takes one thing for another")),
    }
}

/// The same, where only a file will do.
fn file(desk: &mut HostCall<'_, '_>, args: HostArgs<'_>) -> Result<u32, HostCallError> {
    let fd = descriptor(desk, args.u32(0))?;
    match desk.guest().files.get(fd)? {
        Descriptor::File(_) => Ok(fd),
        _ => Err(WasiErrno::ISDIR.into()),
    }
}

fn unsupported(desk: &mut HostCall<'_, '_>, args: HostArgs<'_>) -> Result<Vec<u8>, HostCallError> {
    descriptor(desk, args.u32(0))?;
    Err(WasiErrno::NOTSUP.into())
}

fn sync(desk: &mut HostCall<'_, '_>, args: HostArgs<'_>) -> Result<Vec<u8>, HostCallError> {
    let fd = descriptor(desk, args.u32(0))?;
    desk.guest().files.sync(fd)?;
    Ok(Vec::new())
}

fn read(desk: &mut HostCall<'_, '_>, args: HostArgs<'_>) -> Result<Vec<u8>, HostCallError> {
    let fd = file(desk, args)?;
    let mut bytes = vec![0; args.u64(1).min(MAX_READ_BYTES) as usize];
    let count = desk.guest().files.read_at(fd, args.u64(2), &mut bytes)?;
    bytes.truncate(count);
    let is_end = count == 0 && args.u64(1) > 0;
    let mut list = desk.write_list(1, &bytes, count)?;
    list.push(u8::from(is_end));
    Ok(list)
}

fn read_directory_entry(desk: &mut HostCall<'_, '_>, args: HostArgs<'_>) -> Result<Vec<u8>, HostCallError> {
    let ResourceHandle::Listing(rows) = desk.handles().get(args.u32(0))? else {
        return Err(HaltReason::AbiViolation("it takes one thing for another").into());
    };
    let Some(row) = rows.pop() else { return Ok(vec![0]) };
    let mut bytes = vec![1, 0, 0, 0, kind(row.kind), 0, 0, 0];
    bytes.extend(desk.write_text(&row.name)?);
    Ok(bytes)
}

fn open(desk: &mut HostCall<'_, '_>, args: HostArgs<'_>) -> Result<Vec<u8>, HostCallError> {
    let fd = descriptor(desk, args.u32(0))?;
    let (how, rights) = (args.u32(4), args.u32(5));
    let wish = OpenFlags {
        read: rights & 1 != 0,
        write: rights & 2 != 0,
        create: how & 1 != 0,
        folder: how & 2 != 0,
        exclusive: how & 4 != 0,
        truncate: how & 8 != 0,
        append: false,
    };
    let opened = desk.with_text((args.u32(2), args.u32(3)), |path, guest| guest.files.open(fd, path, &wish))?;
    desk.handle_result(ResourceHandle::Descriptor(opened))
}

fn stat_at(desk: &mut HostCall<'_, '_>, args: HostArgs<'_>) -> Result<FileAttributes, HostCallError> {
    let fd = descriptor(desk, args.u32(0))?;
    desk.with_text((args.u32(2), args.u32(3)), |path, guest| guest.files.stat(fd, path))
}

fn kind(kind: FileKind) -> u8 {
    match kind {
        FileKind::Other => 0,
        FileKind::Folder => 3,
        FileKind::Link => 5,
        FileKind::File => 6,
    }
}

/// What there is to know, as it lies in memory: the kind, one link, the size, and three times.
fn encode_stat(about: &FileAttributes) -> Vec<u8> {
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
fn encode_metadata_hash(about: &FileAttributes) -> Vec<u8> {
    [about.number.to_le_bytes(), [0; 8]].concat()
}
