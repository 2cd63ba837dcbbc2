//! IP addresses and networks, as `10.0.0.0/8` or `::1`.

use std::fmt;
use std::net::IpAddr;

use serde::de::{Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What the parser expects.
const EXPECTED: &str = "an IP address or network such as `127.0.0.1`, `10.0.0.0/8` or `fd00::/8`";

/// The addresses that share their first bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    /// Number of bits that count.
    prefix: u8,
}

impl Network {
    /// Whether an address is in it. An IPv4 address that is mapped to IPv6 counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let shift = 32_u32.saturating_sub(self.prefix.into());
                (u32::from(own) ^ u32::from(other)).checked_shr(shift).unwrap_or(0) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let shift = 128_u32.saturating_sub(self.prefix.into());
                (u128::from(own) ^ u128::from(other)).checked_shr(shift).unwrap_or(0) == 0
            }
            _ => false,
        }
    }

    /// The addresses of this machine itself.
    pub fn loopback() -> Vec<Self> {
        let v4 = Self { address: IpAddr::from([127, 0, 0, 0]), prefix: 8 };
        let v6 = Self { address: IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1_u16]), prefix: 128 };
        vec![v4, v6]
    }
}

impl std::str::FromStr for Network {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (address, prefix) =
            text.split_once('/').map_or((text, None), |(left, right)| (left, Some(right)));
        let address: IpAddr = address.trim().parse().map_err(|_| ())?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix: u8 = prefix.map_or(Ok(bits), |prefix| prefix.trim().parse()).map_err(|_| ())?;
        if prefix > bits { Err(()) } else { Ok(Self { address, prefix }) }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = if self.address.is_ipv4() { 32 } else { 128 };
        if self.prefix == bits {
            write!(f, "{}", self.address)
        } else {
            write!(f, "{}/{}", self.address, self.prefix)
        }
    }
}

impl Serialize for Network {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Network {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(NetworkVisitor)
    }
}

struct NetworkVisitor;

impl Visitor<'_> for NetworkVisitor {
    type Value = Network;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(EXPECTED)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Network, E> {
        text.parse().map_err(|()| E::invalid_value(Unexpected::Str(text), &self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_contain_the_addresses_with_their_prefix() {
        for (network, inside, outside) in [
            ("10.0.0.0/8", "10.255.1.2", "11.0.0.1"),
            ("192.168.4.7", "192.168.4.7", "192.168.4.8"),
            ("192.168.4.0/23", "::ffff:192.168.5.1", "192.168.6.1"),
            ("0.0.0.0/0", "8.8.8.8", "::1"),
            ("fd00::/8", "fd12::1", "fe80::1"),
            ("::1", "::1", "127.0.0.1"),
        ] {
            let network: Network = network.parse().unwrap();
            assert!(network.contains(inside.parse().unwrap()), "{network} {inside}");
            assert!(!network.contains(outside.parse().unwrap()), "{network} {outside}");
        }
        assert!(Network::loopback().iter().any(|network| network.contains("127.3.2.1".parse().unwrap())));
    }

    #[test]
    fn other_text_is_refused() {
        for text in ["", "localhost", "10.0.0.0/33", "::/129", "10.0.0/8", "1.2.3.4/x"] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
        assert_eq!("10.0.0.0/8".parse::<Network>().unwrap().to_string(), "10.0.0.0/8");
    }
}
