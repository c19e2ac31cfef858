//! Where replays happen: a file that goes, a file that was named, or a schema of its own that goes.

use std::{fs, path::Path};

use tempfile::TempDir;
use windlass::{Config, Engine, Ids};
use windlass_kernel::{Principal, TenantId, token::Role};
use windlass_store::postgres;

use crate::{
    cli::{api::Api, exit, trouble::Trouble},
    http::{Caller, Settings},
};

pub(super) struct Place {
    url: String,
    /// The schema that goes at the end.
    schema: Option<Box<postgres::Options>>,
    /// The folder that goes at the end.
    _folder: Option<TempDir>,
}

impl Place {
    pub(super) fn new(store: Option<&str>) -> Result<Self, Trouble> {
        let Some(store) = store else { return Self::temporary() };
        if let Some(file) = store.strip_prefix("sqlite:").filter(|file| !file.is_empty()) {
            return Self::file(Path::new(file));
        }
        if store.starts_with("postgres://") || store.starts_with("postgresql://") {
            return Self::schema(store);
        }
        let what = format!("{store:?} is no store that I know");
        Err(Trouble::usage(what)
            .then("Try --store sqlite:FILE or --store postgres://HOST/DATABASE."))
    }

    fn temporary() -> Result<Self, Trouble> {
        let folder = tempfile::Builder::new().prefix("windlass-replay-").tempdir();
        let folder =
            folder.map_err(|why| Trouble::failed(format!("no temporary folder: {why}")))?;
        let url = format!("sqlite:{}", folder.path().join("windlass.db").display());
        Ok(Self { url, schema: None, _folder: Some(folder) })
    }

    /// A file with anything in it belongs to somebody, whatever it holds.
    fn file(path: &Path) -> Result<Self, Trouble> {
        if fs::metadata(path).is_ok_and(|found| !found.is_file() || found.len() > 0) {
            let what = format!("{} is there already", path.display());
            let next = "Replays happen in a database of their own: name a file that is not there yet, or leave \
                        out --store.";
            return Err(Trouble::new(exit::CONFLICT, what).then(next));
        }
        Ok(Self { url: format!("sqlite:{}", path.display()), schema: None, _folder: None })
    }

    fn schema(store: &str) -> Result<Self, Trouble> {
        let schema = format!("windlass_replay_{:08x}", Ids::system().random() >> 96);
        let (base, query) = store.split_once('?').unwrap_or((store, ""));
        let kept = query.split('&').filter(|it| !it.is_empty() && !it.starts_with("schema="));
        let own = format!("schema={schema}");
        let query = kept.chain([own.as_str()]).collect::<Vec<_>>().join("&");
        let url = format!("{base}?{query}");
        let options = postgres::Options::parse(&url).map_err(|why| Trouble::of_store(&why))?;
        Ok(Self { url, schema: Some(Box::new(options)), _folder: None })
    }

    /// The API of a store here. It is for development: a job can be run by a call.
    pub(super) async fn open(&self) -> Result<Api, Trouble> {
        let config = Config { timers: None, retention: None, ..Config::default() };
        let engine = Engine::open_with(&self.url, &config).await.map_err(|error| match error {
            windlass::Error::Store(error) => Trouble::of_store(&error),
            other => Trouble::failed(exit::chain(&other)),
        })?;
        let named = "the name is a name";
        let caller = Caller {
            principal: Principal::new("replay").expect(named),
            scope: TenantId::new(Engine::TENANT_DEFAULT).expect(named).into(),
            role: Role::Admin,
            has_token: false,
        };
        Ok(Api::on(engine, caller, Settings::new(true)))
    }

    /// Removes what does not go by itself.
    pub(super) async fn remove(self) -> Result<(), Trouble> {
        match &self.schema {
            None => Ok(()),
            Some(options) => postgres::remove(options).await.map_err(|why| Trouble::of_store(&why)),
        }
    }
}
