//! Data of tracing systems that travels with a trace: `tracestate`.

/// Longest `tracestate` that is passed on, in bytes: what the standard asks for at least.
const LENGTH_MAX: usize = 512;
/// Most members that the standard allows.
const MEMBERS_MAX: usize = 32;

/// A valid `tracestate` of at most 512 bytes, or nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceState(Box<str>);

impl TraceState {
    /// Checks a header. `None` if it is longer than 512 bytes, has more than 32 members, one of them twice, or one that the
    /// standard does not allow.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim_matches([' ', '\t']);
        if text.len() > LENGTH_MAX {
            return None;
        }
        let mut keys = Vec::new();
        for member in text.split(',').map(|member| member.trim_matches([' ', '\t'])) {
            // The standard allows empty members.
            if member.is_empty() {
                continue;
            }
            let (key, value) = member.split_once('=')?;
            if !is_key(key) || !is_value(value) || keys.contains(&key) || keys.len() == MEMBERS_MAX {
                return None;
            }
            keys.push(key);
        }
        Some(Self(text.into()))
    }

    /// The value of the header; empty if there is no data.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// `simple-key`, or `tenant-id@system-id`.
fn is_key(key: &str) -> bool {
    let part = |part: &str, longest: usize, digit_first: bool| {
        let starts = part
            .bytes()
            .next()
            .is_some_and(|first| first.is_ascii_lowercase() || digit_first && first.is_ascii_digit());
        let allowed = |byte: u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-' | b'*' | b'/')
        };
        starts && part.len() <= longest && part.bytes().all(allowed)
    };
    match key.split_once('@') {
        Some((tenant, system)) => part(tenant, 241, true) && part(system, 14, false),
        // A key may start with a digit since the second level of the standard.
        None => part(key, 256, true),
    }
}

fn is_value(value: &str) -> bool {
    let allowed = |byte: u8| matches!(byte, 0x20..=0x7e) && byte != b',' && byte != b'=';
    value.len() <= 256 && value.bytes().all(allowed) && !value.is_empty()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn valid_members_pass_unchanged() {
        for text in ["", "a=1", "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", "0t@sys=x , b=  y", "a=1,,b=2"] {
            assert_eq!(TraceState::parse(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn others_are_left_out() {
        let long = format!("a={}", "x".repeat(257));
        let many: Vec<String> = (0..33).map(|member| format!("k{member}=1")).collect();
        let length = format!("a={},b={},c=1", "x".repeat(250), "x".repeat(256));
        for text in [
            "a",
            "A=1",
            "a=",
            "=1",
            "a=1,a=2",
            "a=b=c",
            "a=ä",
            "@b=1",
            "a@=1",
            &long,
            &many.join(","),
            &length,
        ] {
            assert_eq!(TraceState::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,600}") {
            if let Some(state) = TraceState::parse(&text) {
                prop_assert!(state.as_str().len() <= LENGTH_MAX);
            }
        }
    }
}
