//! `windlass token`, with a server and without.

use crate::{serving::Server, shell::Shell};

#[test]
fn tokens_are_issued_with_a_server_and_without() {
    let mut shell = Shell::new();
    shell.about("The first token makes the database.");
    let first = shell.quiet("windlass token add ann --role admin --tenant '*' --label first");
    assert!(first.stdout.starts_with("windlass_"), "{}{}", first.stdout, first.stderr);
    shell.run("windlass token list");
    shell.run("windlass token add bob --role king");
    shell.run("windlass token add bob --expires-at yesterday");
    let server = Server::start(shell.folder(), "");
    shell.about("While a server has it open, the server issues them.");
    let token = first.stdout.trim();
    let more = "--role viewer --tenant shop --expires-at 2126-01-02T03:04:05Z";
    let second =
        shell.quiet(&format!("WINDLASS_TOKEN={token} windlass token add bob {more} -o json"));
    let second = second.json();
    assert_eq!(second["tenant"], "shop");
    assert_eq!(second["created_by"], "user:ann");
    let third =
        shell.quiet(&format!("WINDLASS_TOKEN={token} windlass token add cat -o json")).json();
    assert_eq!(third["tenant"], "default", "it does not give away everybody's things");
    let id = second["token_id"].as_str().expect("an id");
    shell.run("windlass token list");
    let listed = shell.quiet(&format!("WINDLASS_TOKEN={token} windlass token list -o json")).json();
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(3));
    server.stop();
    shell.about("Whoever revokes is asked, and where nobody can answer nothing is done.");
    shell.run(&format!("windlass token revoke {id} --reason 'bob is gone'"));
    shell.run(&format!("windlass token revoke {id} --reason 'bob is gone' --yes"));
    shell.run("windlass token revoke tok_00000000000000000000000007 --yes");
    shell.about("The last admin stays, unless it is said that it shall go.");
    let all = shell.quiet("windlass token list -o json").json();
    let tokens = all["items"].as_array().expect("a list").iter();
    let admin = tokens.clone().find(|token| token["role"] == "admin").expect("there is one");
    let admin = admin["token_id"].as_str().expect("an id").to_owned();
    shell.run(&format!("windlass token revoke {admin} --yes"));
    shell.run(&format!("windlass token revoke {admin} --yes --force"));
    shell.run("windlass token list");
    shell.columns(60);
    shell.run("windlass token list");
    shell.finish("tokens");
}
