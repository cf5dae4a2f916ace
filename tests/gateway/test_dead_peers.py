import socket

from infer_engine.sockets import bind_tcp


def test_accepted_connections_are_probed_for_dead_peers() -> None:
    listener = bind_tcp("127.0.0.1", 0, or_free_port=False)
    with listener, socket.create_connection(listener.getsockname()):
        listener.setblocking(True)
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            for option, value in (
                (socket.TCP_KEEPIDLE, 15),
                (socket.TCP_KEEPINTVL, 5),
                (socket.TCP_KEEPCNT, 3),
                (socket.TCP_USER_TIMEOUT, 20_000),
            ):
                assert accepted.getsockopt(socket.IPPROTO_TCP, option) == value
