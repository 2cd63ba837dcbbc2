//! The text of a `config.pbtxt` as the protobuf parser accepts it.

/// The text with a colon before every list of messages. The format allows `input [ { ... } ]`, and every example
/// of Triton is written so, but the parser knows only `input: [ { ... } ]`. Also returns where the colons are in the result.
pub(super) fn with_colons(text: &str) -> (String, Vec<usize>) {
    let (mut with, mut added) = (String::with_capacity(text.len() + 16), Vec::new());
    let (mut quote, mut comment, mut escaped, mut after_name) = (None, false, false, false);
    for c in text.chars() {
        if comment {
            comment = c != '\n';
        } else if let Some(end) = quote {
            quote = (escaped || c != end).then_some(end);
            escaped = c == '\\' && !escaped;
        } else if c == '#' {
            comment = true;
        } else if c == '"' || c == '\'' {
            (quote, after_name) = (Some(c), false);
        } else {
            if c == '[' && after_name {
                added.push(with.len());
                with.push(':');
            }
            after_name = c.is_ascii_alphanumeric() || c == '_' || (after_name && c.is_whitespace());
        }
        with.push(c);
    }
    (with, added)
}
