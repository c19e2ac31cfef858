//! The page that shows every command, in groups: what a person wants to do comes before what it is called.

use clap::Command;

/// Commands by what they are for. One that is not named here stands at the end.
const GROUPS: &[(&str, &[&str])] = &[
    ("Run", &["dev", "demo", "serve", "worker"]),
    ("Work with", &["job", "dlq", "queue", "schedule"]),
    ("See how it is", &["top", "doctor", "explain"]),
    ("Look after it", &["token", "config", "backup", "restore", "migrate"]),
    ("Try it hard", &["bench", "replay"]),
    ("Set up a shell", &["completions", "man"]),
];

/// The same command, whose help shows its commands in groups.
pub(crate) fn grouped(command: Command) -> Command {
    let list = list(&command);
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{list}\n\
         Each has its own help: windlass help job, windlass help job add.\n\n\
         Everywhere:\n{{options}}"
    );
    command.help_template(template)
}

fn list(command: &Command) -> String {
    let all: Vec<(&str, String)> = command
        .get_subcommands()
        .filter(|sub| !sub.is_hide_set())
        .map(|sub| (sub.get_name(), sub.get_about().map(ToString::to_string).unwrap_or_default()))
        .collect();
    let line = |(name, about): &(&str, String)| format!("  {name:<11}  {about}\n");
    let is_grouped = |name: &str| GROUPS.iter().any(|(_, names)| names.contains(&name));
    let mut text = String::new();
    for (title, names) in GROUPS {
        let found = names.iter().filter_map(|name| all.iter().find(|(it, _)| it == name));
        let lines: String = found.map(line).collect();
        if !lines.is_empty() {
            text.push_str(&format!("\n{title}:\n{lines}"));
        }
    }
    let others: String = all.iter().filter(|(name, _)| !is_grouped(name)).map(line).collect();
    if !others.is_empty() {
        text.push_str(&format!("\nMore:\n{others}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn every_command_has_its_group_and_a_short_line() {
        let text = list(&crate::cli::Cli::command());
        assert!(!text.contains("More:"), "{text}");
        for line in text.lines() {
            assert!(line.len() <= 100, "{line}");
        }
        crate::cli::Cli::command().debug_assert();
    }
}
