"""A moto server that acts more like EC2: it has what that lacks, and can be told to fail.

Comes in: HTTP on loopback. Goes out: answers of EC2, IAM, SSM, STS, FSx, EFS, S3, pricing and quotas. Called by:
tests.aws.moto_server, which starts `python -m tests.aws.server` as a process of its own. Nothing in site-packages is
touched: methods are put on moto's classes when the process starts.

    front.py     WSGI: the hooks below /_ground, prices, and connections that are cut instead of answered
    guard.py     every request: one at a time, read by botocore's model and checked against it, noted, made to fail
    onto.py      puts functions on moto's classes
    ground.py    what tests set and read: faults, capacity, quotas, prices, time, calls, bills
    launches.py  RunInstances and the launching half of CreateFleet, with what EC2 refuses
    refusals.py  those refusals, one function each
    fleets.py    CreateFleet of type instant
    missing.py   placement groups, capacity reservations, spot prices, topology
    in_use.py    what can't be deleted as long as it is used
    quotas.py    service quotas of EC2
    pricing.py   the price list
"""
