//! Manual pages in roff: `tessera(1)` and one for each command, from the command line's own definition.

use std::io;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use super::Page;

/// The pages, for `man/man1`.
///
/// # Errors
/// Never in practice: the pages are written to memory.
pub fn pages(command: &Command) -> io::Result<Vec<Page>> {
    let mut whole = command.clone().disable_help_subcommand(true);
    whole.build();
    let version = whole.get_version().unwrap_or_default().to_owned();
    let mut shown = Vec::new();
    visible(&whole, &mut shown);
    shown.iter().map(|command| page(command, &version)).collect()
}

/// A command and its subcommands, except hidden ones.
fn visible<'a>(command: &'a Command, shown: &mut Vec<&'a Command>) {
    if !command.is_hide_set() {
        shown.push(command);
        command.get_subcommands().for_each(|subcommand| visible(subcommand, shown));
    }
}

fn page(command: &Command, version: &str) -> io::Result<Page> {
    let man = Man::new(command.clone());
    let file = man.get_filename();
    // An empty third argument means no date. `Man` would leave out the argument and shift the others.
    let title = format!(".TH {} 1 \"\" \"tessera {version}\" Tessera\n", file.trim_end_matches(".1"));
    let mut text = title.into_bytes();
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut text)?;
    }
    if command.get_subcommands().any(|subcommand| !subcommand.is_hide_set()) {
        man.render_subcommands_section(&mut text)?;
    }
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    notes(&after).to_writer(&mut text)?;
    // One empty line before possible values, as `man` likes it.
    let text = String::from_utf8_lossy(&text).replace(".br\n\n.br\n", ".sp\n");
    Ok(Page { file, text })
}

/// What follows the options in the help: examples as they are, and text.
fn notes(after_help: &str) -> Roff {
    let mut roff = Roff::new();
    if !after_help.is_empty() {
        roff.control("SH", ["EXAMPLES AND NOTES"]);
    }
    for (index, paragraph) in after_help.split("\n\n").enumerate() {
        if index > 0 {
            roff.control("PP", []);
        }
        let mut code = false;
        for line in paragraph.lines() {
            if line.starts_with("  ") != code {
                code = !code;
                roff.control(if code { "nf" } else { "fi" }, []);
            }
            roff.text([if code { bold(line) } else { roman(line) }]);
        }
        if code {
            roff.control("fi", []);
        }
    }
    roff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_and_examples_keep_their_lines() {
        let command = Command::new("tool")
            .version("1.2")
            .about("Does things.")
            .after_help("Examples:\n  tool --one\n  tool --two\n\nExit code 0: success.")
            .subcommand(Command::new("part").about("Does a part."))
            .subcommand(Command::new("secret").hide(true));
        let pages = pages(&command).unwrap();
        assert_eq!(
            pages.iter().map(|page| page.file.as_str()).collect::<Vec<_>>(),
            ["tool.1", "tool-part.1"]
        );
        let first = pages[0].text.as_str();
        assert!(first.contains("tool\\-part(1)") && !first.contains("secret"), "{first}");
        assert!(
            first.contains(".nf\n\\fB  tool \\-\\-one\\fR\n\\fB  tool \\-\\-two\\fR\n.fi\n.PP\n"),
            "{first}"
        );
    }
}
