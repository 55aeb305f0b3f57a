//! HMAC-SHA256 signatures of webhook bodies.

use sha2::{Digest, Sha256};

const BLOCK: usize = 64;

/// The signature of a body, as the header has it: `sha256=` and hexadecimal digits.
#[must_use]
pub fn sign(secret: &[u8], body: &[u8]) -> String {
    let mut text = "sha256=".to_owned();
    for byte in digest(secret, body) {
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// Verifies a signature in constant time.
#[must_use]
pub fn verify(secret: &[u8], body: &[u8], header: &str) -> bool {
    let (wanted, given) = (sign(secret, body), header.trim().to_ascii_lowercase());
    let differences = wanted.bytes().zip(given.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b));
    wanted.len() == given.len() && std::hint::black_box(differences) == 0
}

fn digest(secret: &[u8], body: &[u8]) -> [u8; 32] {
    let mut key = [0; BLOCK];
    if secret.len() > BLOCK {
        key[..32].copy_from_slice(&Sha256::digest(secret));
    } else {
        key[..secret.len()].copy_from_slice(secret);
    }
    let padded = |mask: u8| key.map(|byte| byte ^ mask);
    let inner = Sha256::new().chain_update(padded(0x36)).chain_update(body).finalize();
    Sha256::new().chain_update(padded(0x5c)).chain_update(inner).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cases 1, 2 and 6 of RFC 4231.
    #[test]
    fn agrees_with_the_standard() {
        let seen = [
            sign(&[0x0b; 20], b"Hi There"),
            sign(b"Jefe", b"what do ya want for nothing?"),
            sign(&[0xaa; 131], b"Test Using Larger Than Block-Size Key - Hash Key First"),
        ];
        let want = [
            "sha256=b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
            "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            "sha256=60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
        ];
        assert_eq!(seen, want);
    }

    #[test]
    fn a_wrong_signature_is_wrong() {
        let right = sign(b"secret", b"body");
        assert!(verify(b"secret", b"body", &right.to_uppercase().replace("SHA256", "sha256")));
        for wrong in ["", "sha256=", &right[..70], &format!("{right}0"), &sign(b"secret", b"Body")] {
            assert!(!verify(b"secret", b"body", wrong), "{wrong}");
        }
    }
}
