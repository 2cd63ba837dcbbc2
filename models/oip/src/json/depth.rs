//! The limit on nesting. serde's own recursion limit does not cover skipped members, so the whole text is scanned
//! first. Later steps may therefore recurse.

use crate::ProtocolError;

/// Checks that arrays and objects nest at most `limit` deep. The text need not be JSON.
pub(super) fn check(text: &[u8], limit: usize) -> Result<(), ProtocolError> {
    let mut depth = 0_usize;
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => skip_string(&mut bytes),
            b'[' | b'{' => {
                depth = depth.saturating_add(1);
                if depth > limit {
                    return Err(ProtocolError::Depth { limit });
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(())
}

fn skip_string(bytes: &mut std::slice::Iter<'_, u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => {
                bytes.next();
            }
            b'"' => return,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_in_strings_do_not_count() {
        assert_eq!(check(br#"{"a":"[[[\"[[","b":[1]}"#, 2), Ok(()));
        assert_eq!(check(br#"{"a":[[1]]}"#, 2), Err(ProtocolError::Depth { limit: 2 }));
        assert_eq!(check(br"[[]],[[]]", 2), Ok(()));
    }
}
