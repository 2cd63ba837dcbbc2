//! Standard output and standard error of the commands. A closed pipe (`| head`) is not an error.

use std::io::Write as _;

/// Writes to standard output.
pub fn write(bytes: &[u8]) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(bytes).and_then(|()| out.flush());
}

/// Writes a line to standard output.
pub fn line(text: &str) {
    write(format!("{text}\n").as_bytes());
}

/// Writes a line to standard error.
pub fn complain(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// A table for people: no frames, columns aligned, as wide as it must be.
pub fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING).set_header(header.to_vec());
    for row in rows {
        table.add_row(row);
    }
    // The style pads cells on both sides; at the edges that is only noise.
    table.lines().map(|line| format!("{}\n", line.strip_prefix(' ').unwrap_or(&line).trim_end())).collect()
}
