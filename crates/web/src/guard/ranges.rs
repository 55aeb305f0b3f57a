//! Every block of addresses that is not the public internet, and why.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Blocks of IPv4 that are refused: first address, length of the prefix, what it is.
const IPV4_BLOCKS: &[([u8; 4], u32, &str)] = &[
    ([0, 0, 0, 0], 8, "\"this network\" (0.0.0.0/8)"),
    ([10, 0, 0, 0], 8, "a private network (10.0.0.0/8)"),
    ([100, 64, 0, 0], 10, "a carrier's inner network (100.64.0.0/10)"),
    ([127, 0, 0, 0], 8, "loopback (127.0.0.0/8)"),
    ([168, 63, 129, 16], 32, "a cloud's own service (168.63.129.16)"),
    ([169, 254, 169, 254], 32, "a cloud's metadata service (169.254.169.254)"),
    ([169, 254, 0, 0], 16, "link-local (169.254.0.0/16)"),
    ([172, 16, 0, 0], 12, "a private network (172.16.0.0/12)"),
    ([192, 0, 0, 0], 24, "reserved for protocols (192.0.0.0/24)"),
    ([192, 0, 2, 0], 24, "for documentation (192.0.2.0/24)"),
    ([192, 31, 196, 0], 24, "a special service (192.31.196.0/24)"),
    ([192, 52, 193, 0], 24, "a special service (192.52.193.0/24)"),
    ([192, 88, 99, 0], 24, "a 6to4 relay (192.88.99.0/24)"),
    ([192, 168, 0, 0], 16, "a private network (192.168.0.0/16)"),
    ([192, 175, 48, 0], 24, "a special service (192.175.48.0/24)"),
    ([198, 18, 0, 0], 15, "for benchmarks (198.18.0.0/15)"),
    ([198, 51, 100, 0], 24, "for documentation (198.51.100.0/24)"),
    ([203, 0, 113, 0], 24, "for documentation (203.0.113.0/24)"),
    ([224, 0, 0, 0], 4, "multicast (224.0.0.0/4)"),
    ([255, 255, 255, 255], 32, "broadcast (255.255.255.255)"),
    ([240, 0, 0, 0], 4, "reserved (240.0.0.0/4)"),
];

/// Blocks of IPv6 that are refused. What is in none of them is refused too unless it is in 2000::/3.
const IPV6_BLOCKS: &[([u16; 8], u32, &str)] = &[
    ([0, 0, 0, 0, 0, 0, 0, 0], 128, "the unspecified address (::)"),
    ([0, 0, 0, 0, 0, 0, 0, 1], 128, "loopback (::1)"),
    ([0, 0, 0, 0, 0, 0xffff, 0, 0], 96, "IPv4 in IPv6 (::ffff:0:0/96)"),
    ([0, 0, 0, 0, 0xffff, 0, 0, 0], 96, "IPv4 in IPv6 (::ffff:0:0:0/96)"),
    ([0, 0, 0, 0, 0, 0, 0, 0], 96, "IPv4 in IPv6 (::/96)"),
    ([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96, "IPv4 behind NAT64 (64:ff9b::/96)"),
    ([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48, "IPv4 behind NAT64 (64:ff9b:1::/48)"),
    ([0x100, 0, 0, 0, 0, 0, 0, 0], 63, "the discard block (100::/64)"),
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 32, "IPv4 in Teredo (2001::/32)"),
    ([0x2001, 0x10, 0, 0, 0, 0, 0, 0], 28, "an ORCHID (2001:10::/28)"),
    ([0x2001, 0x20, 0, 0, 0, 0, 0, 0], 28, "an ORCHID (2001:20::/28)"),
    ([0x2001, 0x2, 0, 0, 0, 0, 0, 0], 48, "for benchmarks (2001:2::/48)"),
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 23, "reserved for protocols (2001::/23)"),
    ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32, "for documentation (2001:db8::/32)"),
    ([0x2002, 0, 0, 0, 0, 0, 0, 0], 16, "IPv4 in 6to4 (2002::/16)"),
    ([0x3ffe, 0, 0, 0, 0, 0, 0, 0], 16, "an experiment that ended (3ffe::/16)"),
    ([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20, "for documentation (3fff::/20)"),
    ([0x5f00, 0, 0, 0, 0, 0, 0, 0], 16, "segment routing (5f00::/16)"),
    ([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254], 128, "a cloud's metadata service (fd00:ec2::254)"),
    ([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7, "a private network (fc00::/7)"),
    ([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10, "link-local (fe80::/10)"),
    ([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10, "site-local (fec0::/10)"),
    ([0xff00, 0, 0, 0, 0, 0, 0, 0], 8, "multicast (ff00::/8)"),
];

/// What an address is, if it is anything but a public one.
#[must_use]
pub fn non_public_reason(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(four) => IPV4_BLOCKS
            .iter()
            .find(|(start, length, _)| block_contains(Ipv4Addr::from(*start).into(), *length, four.into()))
            .map(|(_, _, what)| *what),
        IpAddr::V6(six) => IPV6_BLOCKS
            .iter()
            .find(|(start, length, _)| block_contains(Ipv6Addr::from(*start).into(), *length, six.into()))
            .map(|(_, _, what)| *what)
            .or_else(|| unusual_ipv6_reason(six)),
    }
}

/// Other refused addresses: everything outside 2000::/3, and tunnels that contain an IPv4 address.
fn unusual_ipv6_reason(address: Ipv6Addr) -> Option<&'static str> {
    let parts = address.segments();
    if parts[0] & 0xe000 != 0x2000 {
        return Some("not handed out to anybody (outside 2000::/3)");
    }
    let isatap = parts[4] & !0x0200 == 0 && parts[5] == 0x5efe;
    isatap.then_some("IPv4 in ISATAP (::5efe:0:0)")
}

/// Whether a block of this start and length has the address.
pub(super) fn block_contains(start: IpAddr, length: u32, address: IpAddr) -> bool {
    match (start, address) {
        (IpAddr::V4(start), IpAddr::V4(address)) => {
            let kept = u32::MAX.checked_shl(32 - length.min(32)).unwrap_or(0);
            (start.to_bits() ^ address.to_bits()) & kept == 0
        }
        (IpAddr::V6(start), IpAddr::V6(address)) => {
            let kept = u128::MAX.checked_shl(128 - length.min(128)).unwrap_or(0);
            (start.to_bits() ^ address.to_bits()) & kept == 0
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn what(address: &str) -> &'static str {
        non_public_reason(address.parse().unwrap()).unwrap_or("public")
    }

    #[test]
    fn says_what_every_kind_of_address_is() {
        let table = [
            ("93.184.216.34", "public"),
            ("1.1.1.1", "public"),
            ("100.63.255.255", "public"),
            ("100.128.0.0", "public"),
            ("172.15.255.255", "public"),
            ("172.32.0.0", "public"),
            ("192.0.1.0", "public"),
            ("198.17.255.255", "public"),
            ("198.20.0.0", "public"),
            ("223.255.255.255", "public"),
            ("2606:4700::1111", "public"),
            ("2a00:1450:4001::5efe", "public"),
            ("0.0.0.0", "\"this network\" (0.0.0.0/8)"),
            ("10.255.0.1", "a private network (10.0.0.0/8)"),
            ("100.100.100.200", "a carrier's inner network (100.64.0.0/10)"),
            ("127.255.255.254", "loopback (127.0.0.0/8)"),
            ("169.254.169.254", "a cloud's metadata service (169.254.169.254)"),
            ("169.254.1.1", "link-local (169.254.0.0/16)"),
            ("172.31.255.255", "a private network (172.16.0.0/12)"),
            ("192.0.0.192", "reserved for protocols (192.0.0.0/24)"),
            ("192.168.1.1", "a private network (192.168.0.0/16)"),
            ("198.19.255.255", "for benchmarks (198.18.0.0/15)"),
            ("203.0.113.9", "for documentation (203.0.113.0/24)"),
            ("239.255.255.250", "multicast (224.0.0.0/4)"),
            ("250.1.1.1", "reserved (240.0.0.0/4)"),
            ("255.255.255.255", "broadcast (255.255.255.255)"),
            ("::", "the unspecified address (::)"),
            ("::1", "loopback (::1)"),
            ("::127.0.0.1", "IPv4 in IPv6 (::/96)"),
            ("::ffff:93.184.216.34", "IPv4 in IPv6 (::ffff:0:0/96)"),
            ("::ffff:0:7f00:1", "IPv4 in IPv6 (::ffff:0:0:0/96)"),
            ("64:ff9b::7f00:1", "IPv4 behind NAT64 (64:ff9b::/96)"),
            ("64:ff9b:1::a00:1", "IPv4 behind NAT64 (64:ff9b:1::/48)"),
            ("100::1", "the discard block (100::/64)"),
            ("2001:0:7f00:1::", "IPv4 in Teredo (2001::/32)"),
            ("2001:20::1", "an ORCHID (2001:20::/28)"),
            ("2001:db8::1", "for documentation (2001:db8::/32)"),
            ("2002:7f00:1::", "IPv4 in 6to4 (2002::/16)"),
            ("2a00::5efe:7f00:1", "IPv4 in ISATAP (::5efe:0:0)"),
            ("2a00::200:5efe:a00:1", "IPv4 in ISATAP (::5efe:0:0)"),
            ("fd00:ec2::254", "a cloud's metadata service (fd00:ec2::254)"),
            ("fdff::1", "a private network (fc00::/7)"),
            ("fe80::1", "link-local (fe80::/10)"),
            ("fec0::1", "site-local (fec0::/10)"),
            ("ff02::1", "multicast (ff00::/8)"),
            ("4000::1", "not handed out to anybody (outside 2000::/3)"),
        ];
        for (address, expected) in table {
            assert_eq!(what(address), expected, "{address}");
        }
    }
}
