//! Messages of serde in words that readers of a configuration file know.

/// Rewords a message of serde: `invalid value: integer 0, expected a nonzero u32` becomes
/// `expected a whole number of at least 1, got 0`. Other messages stay as they are.
///
/// ```
/// assert_eq!(units::in_words("invalid type: integer `50`, expected a string"), "expected a string, got `50`");
/// ```
#[must_use]
pub fn in_words(message: &str) -> String {
    let mismatch =
        ["invalid type: ", "invalid value: "].iter().find_map(|prefix| message.strip_prefix(prefix));
    if let Some((found, expected)) = mismatch.and_then(|rest| rest.rsplit_once(", expected ")) {
        return format!("expected {}, got {}", expectation(expected), value(found));
    }
    let variant = message.strip_prefix("unknown variant ");
    if let Some((found, expected)) = variant.and_then(|rest| rest.split_once(", expected ")) {
        return format!("expected {expected}, got {found}");
    }
    match message {
        message if message.starts_with("invalid length ") && message.contains(", expected struct ") => {
            "expected a table, got a list".to_owned()
        }
        "invalid socket address syntax" => "expected an address such as `127.0.0.1:8000`".to_owned(),
        other => other.to_owned(),
    }
}

fn expectation(expected: &str) -> String {
    let integer = |word: &str| {
        let (kind, width) = word.split_at_checked(1)?;
        let known = matches!(width, "8" | "16" | "32" | "64" | "128" | "size");
        (known && matches!(kind, "u" | "i")).then_some(kind == "u")
    };
    if let Some(word) = expected.strip_prefix("a nonzero ")
        && integer(word).is_some()
    {
        return "a whole number of at least 1".to_owned();
    }
    match (integer(expected), expected) {
        (Some(true), _) => "a whole number of at least 0".to_owned(),
        (Some(false), _) => "a whole number".to_owned(),
        (None, "socket address") => "an address such as `127.0.0.1:8000`".to_owned(),
        (None, "path string") => "a path".to_owned(),
        (None, "f32" | "f64") => "a number".to_owned(),
        (None, "a sequence") => "a list".to_owned(),
        (None, "a map") => "a table".to_owned(),
        (None, "a boolean") => "true or false".to_owned(),
        (None, other) if other.starts_with("struct ") => "a table".to_owned(),
        (None, other) => other.to_owned(),
    }
}

fn value(found: &str) -> String {
    match found {
        "sequence" => return "a list".to_owned(),
        "map" => return "a table".to_owned(),
        _ => {}
    }
    for kind in ["integer ", "floating point ", "boolean "] {
        if let Some(value) = found.strip_prefix(kind) {
            return value.to_owned();
        }
    }
    found.strip_prefix("string ").map_or_else(|| found.to_owned(), |text| format!("`{text}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_the_program_are_not_shown() {
        for (message, words) in [
            (
                "invalid type: integer `50`, expected a duration such as `50ms`",
                "expected a duration such as `50ms`, got `50`",
            ),
            (
                "invalid value: integer `0`, expected a nonzero u32",
                "expected a whole number of at least 1, got `0`",
            ),
            (
                "invalid value: integer `-1`, expected usize",
                "expected a whole number of at least 0, got `-1`",
            ),
            (
                "invalid type: string \"tritn\", expected struct BatchingSettings",
                "expected a table, got `\"tritn\"`",
            ),
            ("invalid type: sequence, expected a boolean", "expected true or false, got a list"),
            ("invalid type: floating point `1.5`, expected i64", "expected a whole number, got `1.5`"),
            (
                "unknown variant `sometimes`, expected `all` or `explicit`",
                "expected `all` or `explicit`, got `sometimes`",
            ),
            ("invalid socket address syntax", "expected an address such as `127.0.0.1:8000`"),
            (
                "invalid type: integer `8001`, expected socket address",
                "expected an address such as `127.0.0.1:8000`, got `8001`",
            ),
            ("invalid length 2, expected struct Lanes with 4 elements", "expected a table, got a list"),
            ("anything else", "anything else"),
        ] {
            assert_eq!(in_words(message), words);
        }
    }
}
