//! Decompresses bodies up to a limit. A second layer of compression is not opened.

use std::io::{self, Read};

use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use helve_contract::{Error, Result};

/// What we say that we unpack.
pub(super) const ACCEPT_ENCODING: &str = "gzip, deflate, br";

/// Decompresses a body by its `Content-Encoding`. The flag says whether it exceeds `most`.
pub(super) fn decompress(body: Vec<u8>, encoding: &str, most: usize) -> Result<(Vec<u8>, bool)> {
    let layers: Vec<String> = encoding
        .split(',')
        .map(|it| it.trim().to_ascii_lowercase())
        .filter(|it| !matches!(it.as_str(), "" | "identity"))
        .collect();
    let [layer] = &layers[..] else {
        return match layers.len() {
            0 => Ok((body, false)),
            many => Err(Error::failed(format!("the answer is packed {many} times over, and only one layer is opened"))),
        };
    };
    let mut out = Vec::new();
    let read = match layer.as_str() {
        "gzip" | "x-gzip" => read_up_to(MultiGzDecoder::new(&body[..]), &mut out, most),
        "br" => read_up_to(brotli_decompressor::Decompressor::new(&body[..], 4096), &mut out, most),
        "deflate" => read_up_to(ZlibDecoder::new(&body[..]), &mut out, most).or_else(|_| {
            // Some servers omit the zlib wrapper, against the standard.
            out.clear();
            read_up_to(DeflateDecoder::new(&body[..]), &mut out, most)
        }),
        other => {
            let other: String = other.chars().take(20).collect();
            return Err(Error::failed(format!("the answer is packed with `{other}`, which was not asked for")));
        }
    };
    match read {
        Ok(cut) => Ok((out, cut)),
        // A truncated body, or one with trailing garbage, is still useful.
        Err(_) if !out.is_empty() => Ok((out, true)),
        Err(error) => {
            Err(Error::failed(format!("the answer says that it is packed with {layer}, and is not ({error})")))
        }
    }
}

/// Reads up to `most`; whether there is more.
fn read_up_to(from: impl Read, out: &mut Vec<u8>, most: usize) -> io::Result<bool> {
    from.take(most as u64 + 1).read_to_end(out)?;
    let cut = out.len() > most;
    out.truncate(most);
    Ok(cut)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{
        Compression,
        write::{DeflateEncoder, GzEncoder, ZlibEncoder},
    };

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut packer = GzEncoder::new(Vec::new(), Compression::best());
        packer.write_all(bytes).unwrap();
        packer.finish().unwrap()
    }

    #[test]
    fn opens_one_layer_of_every_kind() {
        let plain = b"hello, hello, hello".to_vec();
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
        zlib.write_all(&plain).unwrap();
        let mut bare = DeflateEncoder::new(Vec::new(), Compression::fast());
        bare.write_all(&plain).unwrap();
        for (packed, encoding) in [
            (plain.clone(), ""),
            (plain.clone(), "identity"),
            (gzip(&plain), "GZIP"),
            (zlib.finish().unwrap(), "deflate"),
            (bare.finish().unwrap(), "deflate"),
        ] {
            assert_eq!(decompress(packed, encoding, 100).unwrap(), (plain.clone(), false), "{encoding}");
        }
    }

    #[test]
    fn a_bomb_stops_at_the_limit() {
        let bomb = gzip(&vec![0; 20 << 20]);
        let (out, cut) = decompress(bomb, "gzip", 1000).unwrap();
        assert_eq!((out.len(), cut), (1000, true));
    }

    #[test]
    fn refuses_layers_and_what_it_does_not_know() {
        let said = |body: &[u8], encoding: &str| decompress(body.to_vec(), encoding, 100).unwrap_err().to_string();
        assert_eq!(said(b"x", "gzip, gzip"), "the answer is packed 2 times over, and only one layer is opened");
        assert_eq!(said(b"x", "zstd"), "the answer is packed with `zstd`, which was not asked for");
        assert!(said(b"words", "gzip").starts_with("the answer says that it is packed with gzip, and is not"));
    }
}
