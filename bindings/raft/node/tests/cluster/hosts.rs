//! Where nodes run: on loopback, or each in a network namespace of its own, between which packets can be dropped.

use std::process::{Child, Command, Stdio};

/// Set in a process that has a network namespace of its own.
const INSIDE: &str = "BRISTLECONE_RAFT_NAMESPACE";

/// The places of nodes; node `n` is at place `n`.
#[derive(Debug)]
pub enum Hosts {
    /// All on loopback, at ports from a base on.
    Loopback { port: u16 },
    /// In namespaces, each of which a process keeps.
    Namespaces { keepers: Vec<Child> },
}

fn run(program: &str, arguments: &str) -> Result<(), String> {
    let ended = Command::new(program).args(arguments.split_whitespace()).output();
    let ended = ended.map_err(|error| format!("{program}: {error}"))?;
    match ended.status.success() {
        true => Ok(()),
        false => Err(format!("{program} {arguments}: {}", String::from_utf8_lossy(&ended.stderr).trim())),
    }
}

/// Runs a test of this program again in a new network namespace; returns whether it runs inside already.
///
/// # Errors
///
/// If namespaces cannot be created here.
pub fn enter(test: &str) -> Result<bool, String> {
    if std::env::var_os(INSIDE).is_some() {
        return Ok(true);
    }
    // Without privileges a user namespace gives them.
    let flags = ["--net", "--net --map-root-user"];
    let flags = flags.into_iter().find(|flags| run("unshare", &format!("{flags} ip link set lo up")).is_ok());
    let flags = flags.ok_or("network namespaces are not permitted here, or ip is not installed")?;
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let ended = Command::new("unshare")
        .args(flags.split(' '))
        .arg(program)
        .args([test, "--exact", "--nocapture"])
        .env(INSIDE, "1")
        .status();
    assert!(ended.map_err(|error| error.to_string())?.success(), "{test} failed in its namespace");
    Ok(false)
}

impl Hosts {
    /// Places nodes in namespaces. This process is in one of its own, and routes between them.
    pub fn namespaces(nodes: u64) -> Result<Self, String> {
        run("ip", "link set lo up")?;
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").map_err(|error| error.to_string())?;
        let keepers = (1..=nodes).map(keep_namespace).collect::<Result<_, _>>()?;
        Ok(Self::Namespaces { keepers })
    }

    /// Returns the address of a node.
    pub fn address(&self, node: u64) -> String {
        match self {
            Self::Loopback { port } => format!("127.0.0.1:{}", u64::from(*port) + node),
            Self::Namespaces { .. } => format!("{}:7000", ip(node)),
        }
    }

    /// Returns a command that runs a program at the place of a node.
    pub fn command(&self, node: u64, program: &str) -> Command {
        match self {
            Self::Loopback { .. } => Command::new(program),
            Self::Namespaces { keepers } => {
                let mut command = Command::new("nsenter");
                let target = keepers[node as usize - 1].id().to_string();
                command.args(["--net", "--target", &target, program]);
                command
            }
        }
    }

    /// Drops all packets between two nodes, in both directions, or no longer. Clients still reach both.
    pub fn cut(&self, one: u64, other: u64, is_cut: bool) {
        let action = if is_cut { "add" } else { "del" };
        for (from, to) in [(one, other), (other, one)] {
            let rule = format!("rule {action} from {} to {} blackhole", ip(from), ip(to));
            run("ip", &rule).expect("a rule of the router");
        }
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        if let Self::Namespaces { keepers } = self {
            for keeper in keepers {
                let _ = keeper.kill().and_then(|()| keeper.wait().map(drop));
            }
        }
    }
}

fn ip(node: u64) -> String {
    format!("10.77.{node}.2")
}

/// Starts a process in a new namespace, and connects the namespace with this one.
fn keep_namespace(node: u64) -> Result<Child, String> {
    // It tells that it is inside; it ends with its standard input, also if this process is killed.
    let script = "echo inside; exec cat >/dev/null";
    let keeper = Command::new("unshare")
        .args(["--net", "sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut keeper = keeper.map_err(|error| error.to_string())?;
    let mut said = [0; 7];
    let output = keeper.stdout.as_mut().ok_or("no output")?;
    std::io::Read::read_exact(output, &mut said).map_err(|error| error.to_string())?;
    let (router, id) = (format!("10.77.{node}.1"), keeper.id());
    run("ip", &format!("link add router{node} type veth peer name node netns {id}"))?;
    run("ip", &format!("addr add {router}/24 dev router{node}"))?;
    run("ip", &format!("link set router{node} up"))?;
    for inside in [
        "ip link set lo up".to_owned(),
        format!("ip addr add {}/24 dev node", ip(node)),
        "ip link set node up".to_owned(),
        format!("ip route add default via {router}"),
    ] {
        run("nsenter", &format!("--net --target {id} {inside}"))?;
    }
    Ok(keeper)
}
