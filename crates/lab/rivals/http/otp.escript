#!/usr/bin/env escript
%%! +S 1:1
%% The rival `otp` of `touchline-lab http`: httpd of Erlang/OTP on one scheduler. Prints its address.
-module(otp).
-export([main/1, do/1]).
-mode(compile).
-include_lib("inets/include/httpd.hrl").

main(_) ->
    {ok, _} = application:ensure_all_started(inets),
    {ok, Server} = inets:start(httpd, [
        {port, 0}, {bind_address, {127, 0, 0, 1}}, {server_name, "otp"}, {server_root, "/tmp"}, {document_root, "/tmp"},
        {modules, [?MODULE]}, {max_clients, 20000}, {socket_type, {ip_comm, [{nodelay, true}, {backlog, 4096}]}}
    ]),
    [{port, Port}] = httpd:info(Server, [port]),
    io:format("127.0.0.1:~b~n", [Port]),
    receive after infinity -> ok end.

do(#mod{request_uri = Uri}) ->
    Value = proplists:get_value("value", uri_string:dissect_query(maps:get(query, uri_string:parse(Uri), "")), ""),
    Body = ["<http_test><value>", Value, "</value></http_test>"],
    Head = [{code, 200}, {content_type, "text/xml"}, {content_length, integer_to_list(iolist_size(Body))}],
    {proceed, [{response, {response, Head, Body}}]}.
