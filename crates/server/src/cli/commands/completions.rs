//! `windlass completions` and `windlass man`: what shells and `man` are told, made from the commands themselves.

use std::{fs, io, path::PathBuf};

use clap::{Args, CommandFactory as _, ValueEnum};

use crate::cli::{Cli, look::terminal, trouble::Trouble};

/// Write the completions of a shell to standard output.
#[derive(Args)]
#[command(
    after_help = "bash:  windlass completions bash > ~/.local/share/bash-completion/completions/windlass\n\
    zsh:   windlass completions zsh > \"${fpath[1]}/_windlass\"\n\
    fish:  windlass completions fish > ~/.config/fish/completions/windlass.fish"
)]
pub(crate) struct Completions {
    /// The shell.
    shell: Shell,
}

#[derive(Clone, Copy, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Write the manual pages into a folder: one for windlass, and one for each command.
#[derive(Args)]
pub(crate) struct Man {
    /// The folder, such as /usr/local/share/man/man1. It is made if it is not there.
    folder: PathBuf,
}

pub(crate) fn completions(command: &Completions) {
    let shell = match command.shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "windlass", &mut script);
    terminal::print(&String::from_utf8_lossy(&script));
}

pub(crate) fn man(command: &Man) -> Result<(), Trouble> {
    let folder = &command.folder;
    let failed = |why: io::Error| {
        Trouble::failed(format!("cannot write the pages into {}: {why}", folder.display()))
    };
    fs::create_dir_all(folder).map_err(failed)?;
    clap_mangen::generate_to(Cli::command(), folder).map_err(failed)?;
    let page = folder.join("windlass.1");
    terminal::say(&format!(
        "The pages are in {}. Read one: man -l {}",
        folder.display(),
        page.display()
    ));
    Ok(())
}
