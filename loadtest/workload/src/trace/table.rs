//! Rows of a CSV text, each with its line.

use csv::{ReaderBuilder, StringRecord, Trim};

/// A fault with its line, where one line is at fault.
pub(crate) type Fault = (Option<u32>, String);

/// Calls `row` with the line and the record of every row below the header, which must start with `header`.
pub(crate) fn rows(
    text: &str,
    header: &[&str],
    mut row: impl FnMut(u32, &StringRecord) -> Result<(), Fault>,
) -> Result<StringRecord, Fault> {
    let mut reader =
        ReaderBuilder::new().has_headers(true).flexible(false).trim(Trim::All).from_reader(text.as_bytes());
    let wrong = |error: &csv::Error| {
        let line = error.position().and_then(|position| u32::try_from(position.line()).ok());
        (line, format!("expected rows as wide as the header: {error}"))
    };
    let names = reader.headers().map_err(|error| wrong(&error))?.clone();
    if !header.iter().eq(names.iter().take(header.len()).collect::<Vec<_>>().iter()) {
        return Err((Some(1), format!("expected the header `{}`", header.join(","))));
    }
    let mut record = StringRecord::new();
    while reader.read_record(&mut record).map_err(|error| wrong(&error))? {
        let line = record.position().map_or(0, csv::Position::line);
        row(u32::try_from(line).unwrap_or(u32::MAX), &record)?;
    }
    Ok(names)
}
