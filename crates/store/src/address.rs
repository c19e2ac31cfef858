//! The address of a store as it may be shown: without its password, wherever that stands.

/// The address without what it says about who asks: `user:password@` is left out, and a parameter that is a password
/// shows no value. It is for every address that is printed, logged or told in an error, also one that makes no sense.
pub fn without_password(address: &str) -> String {
    let masked = mask_parameters(address);
    match (masked.split_once("://"), masked.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://{rest}"),
        (None, Some((_, rest))) => rest.to_owned(),
        _ => masked,
    }
}

/// Hides the values of parameters such as `password=…` and `sslpassword = '…'`.
fn mask_parameters(address: &str) -> String {
    const WORD: &str = "password";
    let (mut shown, mut rest) = (String::new(), address);
    while let Some(at) = rest.to_ascii_lowercase().find(WORD) {
        let (before, after) = rest.split_at(at + WORD.len());
        shown.push_str(before);
        let value = after.trim_start_matches(' ');
        // An equals sign may be written as %3D, too.
        let is_equals = |sign: &&&str| value.get(..sign.len()).is_some_and(|it| it == **sign);
        let sign = ["=", "%3D", "%3d"].iter().find(is_equals);
        let Some(value) = sign.map(|sign| value[sign.len()..].trim_start_matches(' ')) else {
            rest = after;
            continue;
        };
        shown.push_str("=…");
        let end = match value.strip_prefix('\'') {
            Some(quoted) => quoted.find('\'').map_or(value.len(), |end| end + 2),
            None => value.find(['&', ' ']).unwrap_or(value.len()),
        };
        rest = &value[end..];
    }
    shown + rest
}

#[cfg(test)]
mod tests {
    use super::without_password;

    #[test]
    fn a_password_is_nowhere_to_be_seen() {
        for (address, shown) in [
            (
                "postgres://ann:S3CRET@db:5433/shop?schema=jobs",
                "postgres://db:5433/shop?schema=jobs",
            ),
            ("postgre://ann:S3CRET@db/x", "postgre://db/x"),
            ("postgres://db/x?user=u&password=S3CRET", "postgres://db/x?user=u&password=…"),
            ("postgres://db/x?password=S3CRET@S3CRET&a=b", "postgres://db/x?password=…&a=b"),
            ("postgres://db/x?PassWord%3DS3CRET", "postgres://db/x?PassWord=…"),
            ("postgres://db/x?sslpassword=S3CRET", "postgres://db/x?sslpassword=…"),
            ("postgres://ann:S3CRET?@db/x", "postgres://db/x"),
            ("ann:S3CRET@db/x", "db/x"),
            ("host=db password=S3CRET user=u", "host=db password=… user=u"),
            ("host=db password = 'S3CRET S3CRET' user=u", "host=db password=… user=u"),
            ("sqlite:passwords.db", "sqlite:passwords.db"),
            ("sqlite:windlass.db", "sqlite:windlass.db"),
        ] {
            assert_eq!(without_password(address), shown);
            assert!(!without_password(address).contains("S3CRET"), "{address}");
        }
    }
}
