"""Daemons of a lab that a test kills, stops and starts again."""

import subprocess
import threading
import time


class Daemon:
    """A daemon on a member of the lab, which can be killed, stopped and started again."""

    def __init__(self, lab, name, log):
        self.lab, self.name, self.log = lab, name, log
        self.lock = threading.Lock()
        self.words = self.find()
        self.session = None
        self.pid = None

    def find(self):
        """The command that the lab has started here, after killing it and seeing it gone."""
        script = ("for p in /proc/[0-9]*; do n=${p#/proc/}; grep -qz -- '^--token-file$' $p/cmdline 2>/dev/null && "
                  "{ tr '\\0' '\\n' < $p/cmdline; kill -9 $n; while kill -0 $n 2>/dev/null; do sleep 0.01; done; }; done; "
                  "true")
        return self.lab.output(self.name, "sh", "-c", script).splitlines()

    def start(self):
        self.session = subprocess.Popen(
            self.lab.on(self.name, "sh", "-c", 'echo $$; exec "$@"', "sh", *self.words),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log, text=True)
        self.pid = int(self.session.stdout.readline())
        self.session.stdout.readline()

    def signal(self, name):
        self.lab.output(self.name, "kill", f"-{name}", str(self.pid))

    def kill(self):
        self.signal("KILL")
        self.session.wait()

    def kill_for(self, seconds):
        with self.lock:
            self.kill()
            time.sleep(seconds)
            self.start()

    def upgrade(self, seconds):
        with self.lock:
            self.lab.drain(self.name)
            time.sleep(0.3)
            self.signal("TERM")
            self.session.wait()
            time.sleep(seconds)
            self.start()

    def stop_for(self, seconds):
        with self.lock:
            self.signal("STOP")
            time.sleep(seconds)
            self.signal("CONT")
