"""Waits by tickets: many waits of this process share one subscription to a node (``BLOCK ms NOTIFY channel tag``).

1. A wait files a ticket at the desk of its server; the tag is the ticket's number.
2. A worker sends the requests of one *line* (a server, or a slot of a cluster) in the order of the numbers, at most 100
   at a time, on the shared connections. A lost reply is asked for again: requests carry ``ONCE``.
3. ``NOSUBSCRIBER`` names the node to subscribe at. So no connection is opened where tickets are not offered.
4. A line has one channel with a random name, because in a cluster a channel must hash to the slot of the key: one
   channel for each slot in use is the least. All channels of a node share one subscribed connection.
5. That connection is not the shared one: messages count for the limit at which the server closes a subscriber
   (``client-output-buffer-limit``), and replies to subscriptions are no replies to requests.
6. It is probed by subscribing again, which changes nothing and needs no further permission.
7. When a subscription ends, all queued tickets of its lines are due again; the server still has their places.
8. A message ``granted`` proves no hold (any client may publish). The wait confirms it by asking once more (``ONCE``),
   from which its lease is counted. A latch has no hold; its message counts.
9. The server keeps a ticket for 30 s at most, and it is asked for again before, so a process that dies leaves none.
10. A refusal of tickets (older module, ACL, ``lock.max-tickets``) sends the waits of the line to parking, until the
    shared connection is another one.

``table`` decides, without connections; ``desk`` sends requests and ``subscription`` receives messages.
"""
