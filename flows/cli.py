import sys,time
