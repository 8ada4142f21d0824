//! `raftmap`: a node of a replicated ordered map, and its client.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::SocketAddr;
use std::ops::Bound;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use bristlecone_raft::bristlecone::{Design, Domain, parse_size};
use bristlecone_raft::{Command, Options, Reply};
use bristlecone_raft_node::{Client, Query, Seen, Settings, serve};
use clap::{Args, Parser, Subcommand};

/// A replicated ordered map over HTTP.
///
/// Start nodes with `start`, make them a cluster with `init`, then write and read. A write is acknowledged once a
/// majority has it on its medium. Reads are linearizable.
#[derive(Parser)]
#[command(version, name = "raftmap")]
struct Cli {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Run a node until it is interrupted
    Start(Start),
    /// Make new nodes a cluster
    Init(Init),
    /// Insert or overwrite a key
    Put {
        key: String,
        value: String,
        #[command(flatten)]
        nodes: Nodes,
    },
    /// Print the value of a key
    Get {
        key: String,
        #[command(flatten)]
        nodes: Nodes,
    },
    /// Remove a key; print the value that it had
    Delete {
        key: String,
        #[command(flatten)]
        nodes: Nodes,
    },
    /// Change a key if it has a value
    Cas(Cas),
    /// Print keys and values in order
    Range(Range),
    /// Add a member
    Add {
        member: Member,
        #[command(flatten)]
        nodes: Nodes,
    },
    /// Remove a member
    Remove {
        id: u64,
        #[command(flatten)]
        nodes: Nodes,
    },
    /// Print the state of each node
    Status {
        #[command(flatten)]
        nodes: Nodes,
    },
}

#[derive(Args)]
struct Start {
    /// Id of the node: unique in the cluster, and never used again
    #[arg(long)]
    id: u64,
    /// Address where the node listens
    #[arg(long, value_name = "ADDRESS")]
    listen: SocketAddr,
    /// Folder of the store
    #[arg(long)]
    folder: PathBuf,
    /// Design of the trees of a new store [default: sstree]
    #[arg(long)]
    design: Option<Design>,
    /// Persistence domain of a new store [default: that of the medium]
    #[arg(long, value_parser = parse_domain)]
    domain: Option<Domain>,
    /// Maximum size of each pool, for example 8G [default: 1T]
    #[arg(long, value_name = "SIZE", value_parser = |text: &str| parse_size(text).map_err(|error| error.to_string()))]
    max_bytes: Option<u64>,
    /// Entries between two snapshots
    #[arg(long, value_name = "ENTRIES", default_value_t = 5000, value_parser = clap::value_parser!(u64).range(1..))]
    snapshot_every: u64,
    /// Milliseconds between two heartbeats, more than a sync of the disk takes
    #[arg(long, value_name = "MS", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    heartbeat: u64,
}

#[derive(Args)]
struct Init {
    /// Members, as ID=ADDRESS
    #[arg(required = true)]
    members: Vec<Member>,
}

#[derive(Args)]
struct Cas {
    key: String,
    /// Value that the key must have [default: it must be absent]
    #[arg(long)]
    expect: Option<String>,
    /// New value [default: the key is removed]
    #[arg(long)]
    set: Option<String>,
    #[command(flatten)]
    nodes: Nodes,
}

#[derive(Args)]
struct Range {
    /// First key
    #[arg(long)]
    from: Option<String>,
    /// Key behind the last one
    #[arg(long)]
    to: Option<String>,
    /// Most items to print
    #[arg(long, default_value_t = 1000)]
    limit: usize,
    #[command(flatten)]
    nodes: Nodes,
}

#[derive(Args)]
struct Nodes {
    /// Addresses of nodes
    #[arg(long, value_name = "ADDRESS,…", value_delimiter = ',', required = true)]
    nodes: Vec<String>,
    /// Seconds to wait for a leader
    #[arg(long, default_value_t = 10)]
    timeout: u64,
}

/// An id and an address.
#[derive(Clone)]
struct Member(u64, String);

impl std::str::FromStr for Member {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a member; expected ID=ADDRESS, such as 1=127.0.0.1:21001");
        let (id, address) = text.split_once('=').ok_or_else(wrong)?;
        let id = id.parse().map_err(|_| wrong())?;
        if address.rsplit_once(':').is_none_or(|(host, port)| host.is_empty() || port.parse::<u16>().is_err())
        {
            return Err(wrong());
        }
        Ok(Self(id, address.to_owned()))
    }
}

fn parse_domain(text: &str) -> Result<Domain, String> {
    let all = [Domain::Process, Domain::Adr, Domain::Eadr, Domain::Msync, Domain::Journal];
    let found = all.into_iter().find(|domain| domain.to_string() == text);
    found.ok_or_else(|| format!("unknown domain {text:?}; expected process, adr, eadr, msync or journal"))
}

impl Nodes {
    fn client(self) -> Result<Client, String> {
        Client::new(self.nodes, Duration::from_secs(self.timeout))
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Cli::parse().action).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("raftmap: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(action: Action) -> Result<ExitCode, String> {
    match action {
        Action::Start(start) => run_node(start).await,
        Action::Init(Init { members }) => {
            let client = Client::new(vec![members[0].1.clone()], Duration::from_secs(10))?;
            let members: BTreeMap<_, _> =
                members.into_iter().map(|Member(id, address)| (id, address)).collect();
            done(client.initialize(members).await)
        }
        Action::Put { key, value, nodes } => {
            let command = Command::Put { key: key.into(), value: value.into() };
            write(command, nodes).await
        }
        Action::Delete { key, nodes } => write(Command::Delete { key: key.into() }, nodes).await,
        Action::Cas(Cas { key, expect, set, nodes }) => {
            let (expected, new) = (expect.map(Into::into), set.map(Into::into));
            write(Command::CompareAndSet { key: key.into(), expected, new }, nodes).await
        }
        Action::Get { key, nodes } => read(Query::Get(key.into()), nodes).await,
        Action::Range(Range { from, to, limit, nodes }) => {
            let from = from.map_or(Bound::Unbounded, |from| Bound::Included(from.into()));
            let to = to.map_or(Bound::Unbounded, |to| Bound::Excluded(to.into()));
            read(Query::Range { from, to, limit }, nodes).await
        }
        Action::Add { member: Member(id, address), nodes } => done(nodes.client()?.add(id, address).await),
        Action::Remove { id, nodes } => done(nodes.client()?.remove(id).await),
        Action::Status { nodes } => status(nodes).await,
    }
}

async fn run_node(start: Start) -> Result<ExitCode, String> {
    let mut options = Options::new();
    if let Some(design) = start.design {
        options = options.design(design);
    }
    if let Some(domain) = start.domain {
        options = options.domain(domain);
    }
    if let Some(bytes) = start.max_bytes {
        options = options.max_bytes(bytes);
    }
    let settings = Settings {
        id: start.id,
        listen: start.listen,
        folder: start.folder,
        options,
        snapshot_every: start.snapshot_every,
        heartbeat: Duration::from_millis(start.heartbeat),
    };
    let stop = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    serve(settings, stop).await.map(|()| ExitCode::SUCCESS)
}

fn done(ended: Result<(), impl ToString>) -> Result<ExitCode, String> {
    ended.map(|()| ExitCode::SUCCESS).map_err(|error| error.to_string())
}

/// Exits with 1 if the command did not change the key.
async fn write(command: Command, nodes: Nodes) -> Result<ExitCode, String> {
    match nodes.client()?.write(&command).await.map_err(|error| error.to_string())? {
        Reply::Removed(Some(value)) => print(&[&value]).map(|()| ExitCode::SUCCESS),
        Reply::Written | Reply::Exchanged => Ok(ExitCode::SUCCESS),
        Reply::Removed(None) => Err("the key is absent".to_owned()),
        Reply::Differs(None) => Err("the key is absent: nothing has changed".to_owned()),
        Reply::Differs(Some(value)) => {
            Err(format!("the key has the value {:?}: nothing has changed", String::from_utf8_lossy(&value)))
        }
        Reply::TooLong(why) => Err(why),
        Reply::None => Err("the node answered another command".to_owned()),
    }
}

/// Exits with 1 if a key is absent.
async fn read(query: Query, nodes: Nodes) -> Result<ExitCode, String> {
    match nodes.client()?.read(&query).await.map_err(|error| error.to_string())? {
        Seen::Value(Some(value)) => print(&[&value])?,
        Seen::Value(None) => return Err("the key is absent".to_owned()),
        Seen::Items(items) => {
            items.iter().try_for_each(|(key, value)| print(&[key, value]))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints a line of fields with tabs between them.
fn print(fields: &[&[u8]]) -> Result<(), String> {
    let line = [&fields.join(&b'\t')[..], b"\n"].concat();
    std::io::stdout().write_all(&line).map_err(|error| error.to_string())
}

/// Exits with 1 if a node does not answer.
async fn status(nodes: Nodes) -> Result<ExitCode, String> {
    let (addresses, client) = (nodes.nodes.clone(), nodes.client()?);
    let mut code = ExitCode::SUCCESS;
    for address in addresses {
        match client.status(&address).await {
            Ok(status) => print(&[format!("{address}\t{status:?}").as_bytes()])?,
            Err(error) => {
                eprintln!("raftmap: {error}");
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}
