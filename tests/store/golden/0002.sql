BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0002');
CREATE TABLE applied (
	seq INTEGER NOT NULL, 
	t_us BIGINT NOT NULL, 
	"by" TEXT NOT NULL, 
	digest TEXT NOT NULL, 
	commit_name TEXT NOT NULL, 
	v INTEGER NOT NULL, 
	body TEXT NOT NULL, 
	PRIMARY KEY (seq)
);
INSERT INTO "applied" VALUES(3,1796083200000000,'user:root','d3','0123abc',1,'{"spec":{"name":"atlas"},"digest":"d3"}');
CREATE TABLE events (
	seq INTEGER NOT NULL, 
	t_us BIGINT NOT NULL, 
	epoch BIGINT NOT NULL, 
	type TEXT NOT NULL, 
	v INTEGER NOT NULL, 
	subject TEXT NOT NULL, 
	batch BIGINT NOT NULL, 
	"by" TEXT NOT NULL, 
	body TEXT NOT NULL, 
	PRIMARY KEY (seq)
);
INSERT INTO "events" VALUES(1,1795996800000000,1796000000,'job.submitted',1,'job/1',1,'user:alice','{"of":2}');
INSERT INTO "events" VALUES(2,1795996800000000,1796000000,'job.submitted',1,'job/2',1,'user:alice','{"of":2}');
INSERT INTO "events" VALUES(3,1796083200000000,1796000000,'job.submitted',1,'job/3',3,'user:alice','{"of":1}');
CREATE TABLE history (
	job INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	owner TEXT NOT NULL, 
	queue TEXT NOT NULL, 
	state TEXT NOT NULL, 
	exit_code INTEGER NOT NULL, 
	submitted_us BIGINT NOT NULL, 
	ended_us BIGINT NOT NULL, 
	PRIMARY KEY (job)
);
INSERT INTO "history" VALUES(1,'train-1','alice','research','succeeded',0,1795996800000001,1795996800000010);
CREATE TABLE history_records (
	job INTEGER NOT NULL, 
	record TEXT NOT NULL, 
	PRIMARY KEY (job), 
	FOREIGN KEY(job) REFERENCES history (job) ON DELETE CASCADE
);
INSERT INTO "history_records" VALUES(1,'{"id":1}');
CREATE TABLE meta (
	id INTEGER NOT NULL, 
	format INTEGER NOT NULL, 
	cluster TEXT NOT NULL, 
	epoch BIGINT NOT NULL, 
	restored_us BIGINT NOT NULL, 
	backup_us BIGINT NOT NULL, 
	PRIMARY KEY (id), 
	CONSTRAINT one_row CHECK (id = 1)
);
INSERT INTO "meta" VALUES(1,1,'atlas',1796000000,0,0);
CREATE TABLE segments (
	day TEXT NOT NULL, 
	first_seq BIGINT NOT NULL, 
	PRIMARY KEY (day)
);
INSERT INTO "segments" VALUES('2026-11-30',1);
INSERT INTO "segments" VALUES('2026-12-01',3);
CREATE TABLE snapshots (
	seq INTEGER NOT NULL, 
	t_us BIGINT NOT NULL, 
	version INTEGER NOT NULL, 
	checksum TEXT NOT NULL, 
	body BLOB NOT NULL, 
	PRIMARY KEY (seq)
);
INSERT INTO "snapshots" VALUES(2,1795996800000000,1,'6ad2cf6f4f0aaf7753bf174e5f851bdf2f037cdba4548ef00cad03ad57d8493f',X'7801AB56CACA4F2A56B2AA563254B252AA50AAAD0500359D0588');
CREATE TABLE submit_keys (
	"key" TEXT NOT NULL, 
	job BIGINT NOT NULL, 
	digest TEXT NOT NULL, 
	t_us BIGINT NOT NULL, 
	PRIMARY KEY ("key")
);
INSERT INTO "submit_keys" VALUES('alice:1',3,'d',1796083200000000);
CREATE INDEX history_name ON history (name, job);
CREATE INDEX history_owner ON history (owner, job);
CREATE INDEX history_queue ON history (queue, job);
CREATE INDEX history_state ON history (state, job);
CREATE INDEX history_ended ON history (ended_us, job);
CREATE INDEX submit_keys_t ON submit_keys (t_us);
COMMIT;
