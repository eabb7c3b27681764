%% The rival of `touchline-lab registry --beside`: the steps of process_registry_bench with Syn 3, on this machine.
%% The first node starts the other nodes and prints one line of JSON.
-module(syn_bench).
-export([main/1, hold/2, register_all/1, await_count/1, kill_all/1]).

-define(SCOPE, lab).
-define(REST, 1000).

main([Names, Nodes, Paths]) ->
    [Count, Total] = [list_to_integer(atom_to_list(Text)) || Text <- [Nodes, Names]],
    Share = Total div Count,
    Others = [start_node(N, atom_to_list(Paths)) || N <- lists:seq(2, Count)],
    All = [node() | Others],
    [ok = rpc:call(Node, syn, start, []) || Node <- All],
    [ok = rpc:call(Node, syn, add_node_to_scopes, [[?SCOPE]]) || Node <- All],
    timer:sleep(?REST),
    Holders = [{Node, rpc:call(Node, ?MODULE, hold, [N * Share, Share])} || {N, Node} <- lists:enumerate(0, All)],
    Began = now_us(),
    everywhere(Holders, fun({Node, Pids}) -> rpc:call(Node, ?MODULE, register_all, [Pids]) end),
    Registered = now_us(),
    everywhere(All, fun(Node) -> rpc:call(Node, ?MODULE, await_count, [Share * Count]) end),
    Known = now_us(),
    timer:sleep(?REST),
    Killed = now_us(),
    everywhere(Holders, fun({Node, Pids}) -> rpc:call(Node, ?MODULE, kill_all, [Pids]) end),
    everywhere(All, fun(Node) -> rpc:call(Node, ?MODULE, await_count, [0]) end),
    Forgotten = now_us(),
    io:format("{\"registered_per_s\":~w,\"known_ms\":~w,\"forgotten_ms\":~w}~n",
        [Share * Count * 1.0e6 / (Registered - Began), (Known - Registered) / 1000, (Forgotten - Killed) / 1000]),
    halt().

start_node(N, Path) ->
    Name = list_to_atom("syn" ++ integer_to_list(N)),
    Args = ["-setcookie", atom_to_list(erlang:get_cookie()), "-pa", Path, "-kernel", "inet_dist_use_interface", "{127,0,0,1}"],
    {ok, _, Node} = peer:start_link(#{name => Name, host => "127.0.0.1", longnames => true, args => Args}),
    Node.

%% Starts idle processes, each with the number of the name that it will get.
hold(From, Count) -> [{Number, spawn(fun() -> receive stop -> ok end end)} || Number <- lists:seq(From, From + Count - 1)].

%% One caller per node. The caller waits for each call.
register_all(Pids) -> [ok = syn:register(?SCOPE, {name, Number}, Pid) || {Number, Pid} <- Pids], ok.

kill_all(Pids) -> [exit(Pid, kill) || {_, Pid} <- Pids], ok.

await_count(Count) ->
    case syn:registry_count(?SCOPE) of
        Count -> ok;
        _ -> timer:sleep(1), await_count(Count)
    end.

everywhere(List, Do) ->
    Asked = [spawn_monitor(fun() -> ok = Do(One) end) || One <- List],
    [receive {'DOWN', Ref, process, Pid, Reason} -> normal = Reason end || {Pid, Ref} <- Asked],
    ok.

now_us() -> erlang:monotonic_time(microsecond).
